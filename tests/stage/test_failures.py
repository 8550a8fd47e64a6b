"""Errors are sorted by type, errno or status, never by what their text or a name says, and never show a credential."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest

from flatout.stage.sources.failures import Failure, failure_of, kind_of_status, status_failure


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, "busy"), (429, "busy"), (500, "again"), (502, "again"), (504, "again"), (408, "again"), (403, "denied"),
        (401, "denied"), (404, "gone"), (410, "gone"), (412, "changed"), (400, "never"), (501, "never"), (307, "never"),
    ],
)  # fmt: skip
def test_a_status_says_what_to_do(status: int, kind: str) -> None:
    failure = status_failure(status, "s3://b/503.jpg", "404 Not Found")
    assert (failure.kind, failure.status) == (kind, status) and kind_of_status(status) == kind


@pytest.mark.parametrize("name", ["404.jpg", "/mnt/403/x.jpg", "status 412.jpg", "HTTP/1.1 503.jpg"])
def test_numbers_in_names_decide_nothing(name: str) -> None:
    assert failure_of(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), name).kind == "again"
    assert failure_of(OSError(errno.EIO, "Input/output error", name), name).kind == "again"
    assert failure_of(OSError(errno.EACCES, os.strerror(errno.EACCES), name), name).kind == "denied"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), "gone"),
        (NotADirectoryError("x"), "gone"),
        (PermissionError("x"), "denied"),
        (OSError(errno.ELOOP, "loop"), "never"),
        (OSError(errno.ENAMETOOLONG, "long"), "never"),
        (OSError(errno.ESTALE, "stale"), "again"),
        (TimeoutError("slow"), "again"),
        (socket.gaierror(socket.EAI_AGAIN, "later"), "again"),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), "never"),
        (ssl.SSLCertVerificationError(1, "self-signed"), "never"),
        (ssl.SSLError(1, "broken"), "again"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "x"), "never"),
    ],
)
def test_an_error_of_the_machine_is_sorted_by_its_type_and_number(error: Exception, kind: str) -> None:
    assert failure_of(error, "x").kind == kind


def test_a_server_that_asks_to_wait_is_heard() -> None:
    assert status_failure(503, "x", retry_after="7").retry_after_s == 7
    assert failure_of(status_failure(503, "x", retry_after="7"), "y").retry_after_s == 7
    for other in (None, "", "Wed, 21 Oct 2026 07:28:00 GMT", "-5", "soon"):
        assert status_failure(503, "x", retry_after=other).retry_after_s is None


def test_signatures_in_an_address_are_not_shown() -> None:
    text = str(Failure("again", "GET http://h/k?X-Amz-Credential=AKIA123&X-Amz-Signature=abcdef&x=1 failed"))
    assert "AKIA123" not in text and "abcdef" not in text and "x=1" in text
