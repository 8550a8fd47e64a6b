"""Errors are sorted by what to do about them, and never show a credential."""

from __future__ import annotations

import pytest

from flatout.stage.failures import failure_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>", "busy"),
        ("Server returned non-2xx status code: 429 Too Many Requests", "busy"),
        ("Server returned non-2xx status code: 500 Internal Server Error", "again"),
        ("Server returned non-2xx status code: 403 Forbidden", "denied"),
        ("Server returned non-2xx status code: 412 Precondition Failed", "changed"),
        ("error sending request: connection closed before message completed", "again"),
        ("error decoding response body", "again"),
    ],
)
def test_what_a_store_says_is_sorted(text: str, kind: str) -> None:
    assert failure_of(RuntimeError(text), "key").kind == kind


def test_files_that_are_gone_or_closed_are_told_apart() -> None:
    assert failure_of(FileNotFoundError("x"), "x").kind == "gone"
    assert failure_of(PermissionError("x"), "x").kind == "denied"


def test_signatures_in_an_address_are_not_shown() -> None:
    text = str(
        failure_of(RuntimeError("GET http://h/k?X-Amz-Credential=AKIA123&X-Amz-Signature=abcdef&x=1 failed"), "k")
    )
    assert "AKIA123" not in text and "abcdef" not in text and "x=1" in text
