"""Keys are looked for where AWS's own tools look; what is missing is said, and no key is ever shown."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.stage.sources.base import StoreOptions
from flatout.stage.sources.s3 import credentials
from flatout.stage.sources.s3.address import S3Address
from flatout.stage.sources.s3.credentials import Credentials, Keys, profile_credentials, settings
from flatout.stage.sources.s3.signing import signed


class Role:
    """Answers of the servers that give keys of roles."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""


@pytest.fixture
def role() -> Iterator[Role]:
    made = Role()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            made.asked.append((self.command, self.path, dict(self.headers), content))
            status, body = made.answers.get(self.path, (404, ""))
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_POST = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path / ".aws"


def keys(profile: str | None = None) -> Keys:
    return Credentials(profile).keys()


def printed(access: str, token: str = "SessionToken", minutes: float | None = None) -> str:
    found = {"Version": 1, "AccessKeyId": access, "SecretAccessKey": "s3cr3t", token: "t"}
    if minutes is not None:
        found["Expiration"] = datetime.fromtimestamp(time.time() + 60 * minutes, UTC).isoformat()
    return json.dumps(found)


def test_the_default_profile_is_used_without_being_named(home: Path) -> None:
    (home / "credentials").write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B%x=1\n[other]\n")
    assert keys() == Keys("A", "B%x=1")


def test_aws_profile_names_the_profile_and_an_option_comes_before_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config").write_text("[profile one]\naws_access_key_id=A\naws_secret_access_key=B\nregion=eu-west-3\n")
    (home / "credentials").write_text("[two]\naws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n")
    monkeypatch.setenv("AWS_PROFILE", "one")
    assert keys() == Keys("A", "B") and settings(None)["region"] == "eu-west-3"
    assert keys("two") == Keys("C", "D", "E")
    assert S3Address.of("s3://bucket/x", StoreOptions()).region == "eu-west-3"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    assert keys() == Keys("env", "key") and keys("two") == Keys("C", "D", "E")


def test_files_elsewhere_are_read_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c").write_text("[profile p]\nregion = r\nendpoint_url = http://h:1\n")
    (tmp_path / "k").write_text("[p]\naws_access_key_id = A\naws_secret_access_key = B\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "c"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "k"))
    assert profile_credentials("p") == {
        "access_key_id": "A", "secret_access_key": "B", "region": "r", "endpoint": "http://h:1"
    }  # fmt: skip
    assert profile_credentials(None) == {}


def test_a_program_gives_keys_and_is_asked_again_before_they_end(home: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import pathlib, sys\np = pathlib.Path(sys.argv[1]); n = len(p.read_text()) if p.exists() else 0\n"
        f"p.write_text('x' * (n + 1)); print({printed('A', minutes=1)!r}.replace('\"A\"', f'\"A{{n}}\"'))"
    )
    command = f"{sys.executable} {tmp_path / 'program.py'} '{tmp_path / 'count er'}'"
    (home / "config").write_text(f"[default]\ncredential_process = {command}\n")
    found = Credentials(None)
    assert [found.keys().access, found.keys().access] == ["A1", "A2"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh -c 'echo s3cr3t >&2; exit 3'", "gave no keys"),
        ("echo s3cr3t", "no credentials|gave no keys"),
        ("/nonexistent/s3cr3t", "no credentials|gave no keys"),
        ("'s3cr3t", "no credentials|gave no keys"),
    ],
)
def test_a_program_that_fails_is_one_line_without_what_it_said(home: Path, command: str, said: str) -> None:
    (home / "config").write_text(f"[profile p]\ncredential_process = {command}\n")
    with pytest.raises(UsageError, match=said) as refused:
        keys("p")
    assert "s3cr3t" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_profile_that_signs_in_without_a_sign_in_says_what_to_do(home: Path) -> None:
    (home / "config").write_text(
        "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n"
        "[sso-session s]\nsso_start_url = https://sso.example\nsso_region = eu-west-1\n"
    )
    with pytest.raises(UsageError, match=r"no credentials for S3: .*SSO") as refused:
        keys()
    assert "\n" not in str(refused.value)


def test_an_instance_gives_the_keys_of_its_role(role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", role.url)
    monkeypatch.setattr(credentials, "INSTANCE_S", 60)
    path = "/latest/meta-data/iam/security-credentials/"
    role.answers = {
        "/latest/api/token": (200, "tok"),
        path: (200, "my-role"),
        f"{path}my-role": (200, printed("A", "Token", 60)),
    }
    found = keys()
    assert (found.access, found.secret, found.token) == ("A", "s3cr3t", "t")
    assert role.asked[0][:2] == ("PUT", "/latest/api/token")
    role.answers = {}
    with pytest.raises(UsageError, match="no credentials for S3: looked at AWS_ACCESS_KEY_ID"):
        keys()


def test_without_any_credentials_it_is_said_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"AWS_ACCESS_KEY_ID, the profile 'default' .*--anonymous"):
        keys()
    with pytest.raises(UsageError, match="--profile p: no such profile"):
        keys("p")
    monkeypatch.setenv("AWS_PROFILE", "q")
    with pytest.raises(UsageError, match="AWS_PROFILE=q: no such profile"):
        keys()
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "half")
    with pytest.raises(UsageError, match="incomplete: AWS_SECRET_ACCESS_KEY is missing"):
        keys()


@pytest.mark.parametrize("text", ["no section = s3cr3t", "[a\ns3cr3t", "[a]\n  = s3cr3t\n x", "\x00[", "\ufeff\udcff"])
def test_configuration_that_cannot_be_read_is_one_line_without_what_it_holds(home: Path, text: str) -> None:
    (home / "credentials").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError) as refused:
        keys()
    assert "s3cr3t" not in str(refused.value) and "\n" not in str(refused.value)


def test_keys_are_in_no_description_of_an_object() -> None:
    assert "s3cr3t" not in f"{Keys('A', 's3cr3t', 't0k3n')!r}{Keys('A', 's3cr3t', 't0k3n')}"


def test_signatures_are_those_of_the_published_example() -> None:
    # "Authenticating Requests: Using Query Parameters", Amazon S3 API Reference.
    found = signed(
        "GET", "https://examplebucket.s3.amazonaws.com", "/test.txt", {},
        Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), "us-east-1", 86400, 1369353600.0,
    )  # fmt: skip
    assert found.endswith("X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


@pytest.mark.parametrize(
    ("bucket", "region", "server"),
    [
        ("photos", "eu-west-1", ("https://photos.s3.eu-west-1.amazonaws.com", "")),
        ("my.photos", "eu-west-1", ("https://s3.eu-west-1.amazonaws.com", "/my.photos")),
        ("Photos_1", "us-east-1", ("https://s3.us-east-1.amazonaws.com", "/Photos_1")),
        ("photos", "cn-north-1", ("https://photos.s3.cn-north-1.amazonaws.com.cn", "")),
    ],
)
def test_amazons_servers_are_found_by_bucket_and_region(bucket: str, region: str, server: tuple[str, str]) -> None:
    assert S3Address.of(f"s3://{bucket}/x", StoreOptions(region=region)).server(region) == server
