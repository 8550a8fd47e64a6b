"""What a run read from: the library, and how long a file is waited for, cold and warm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.storage import source_evidence, storage_latency
from flatout.measure.clients import client_of
from flatout.predict.context import Context
from flatout.results import Cause
from tests.diagnose.views import change_loader, remote


def frames(*files: str) -> list[list[object]]:
    return [[file, 1, "read", "", False] for file in files]


@pytest.mark.parametrize(
    ("files", "client"),
    [
        (
            ("/lib/python3.12/socket.py", "/site-packages/urllib3/response.py", "/site-packages/botocore/session.py"),
            "boto3 (S3)",
        ),
        (("/site-packages/aiohttp/client.py", "/site-packages/s3fs/core.py"), "s3fs (S3)"),
        (("/lib/python3.12/socket.py", "/lib/python3.12/urllib/request.py", "/home/me/data.py"), "urllib (HTTP)"),
        (("C:\\venv\\requests\\sessions.py",), "requests (HTTP)"),
        (("/home/me/data.py",), None),
    ],
)
def test_the_client_is_the_stores_own_library_before_what_it_uses(files: tuple[str, ...], client: str | None) -> None:
    assert client_of(frames(*files)) == client


def test_a_storage_cause_names_client_and_waits() -> None:
    view = remote()
    assert view.loading is not None
    given: dict[str, Any] = {"peers": ("10.0.0.1:443",), "client": "boto3 (S3)"}
    loading = change_loader(view.loading, **given, file_cold_s=0.0231, file_warm_s=0.0004)
    texts = [evidence.text for evidence in source_evidence(loading)]
    assert texts == ["connected to 10.0.0.1:443 with boto3 (S3)", "a file is waited for 23 ms cold, 400 µs warm"]
    cause = storage_latency(Context.of(replace(view, loading=loading)))
    assert isinstance(cause, Cause)
    assert set(texts) <= {evidence.text for evidence in cause.evidence}
    assert source_evidence(change_loader(loading, peers=(), client=None, file_cold_s=None, file_warm_s=None)) == ()
