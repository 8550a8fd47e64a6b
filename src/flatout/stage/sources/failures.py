"""Failures of one object or of a listing, classified by what to do next."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from typing import Literal

Kind = Literal["busy", "again", "mismatch", "gone", "denied", "changed", "never"]
LONGEST_TEXT = 400  # characters of a server's or library's message
_SECRET = re.compile(
    r"(X-Amz-(?:Signature|Credential|Security-Token)|sig|AWSAccessKeyId|Signature|X-Goog-(?:Signature|Credential))"
    r"=[^&\s\"'<>]+",
    re.I,
)
_BY_ERRNO: dict[int, Kind] = {
    errno.ENOENT: "gone",
    errno.ENOTDIR: "gone",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EISDIR: "never",
    errno.ELOOP: "never",
    errno.ENAMETOOLONG: "never",
    errno.EINVAL: "never",
}


class Failure(Exception):
    """One object, or the listing, could not be read.

    Attributes:
        kind: ``busy`` (the store asks to slow down), ``again`` (transient), ``mismatch`` (bytes that differ from the
            store's checksum), ``gone``, ``denied``, ``changed`` (another version than the one listed) or ``never``.
        status: HTTP status of the response; None: no response.
        retry_after_s: seconds that the server asked to wait; None: it did not ask.
        given_up: all retries are used up.
    """

    given_up = False

    def __init__(self, kind: Kind, text: str, *, status: int | None = None, retry_after_s: float | None = None) -> None:
        """Make a failure with the message ``text``, credentials removed."""
        super().__init__(without_secrets(text))
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s


class InTheWay(Failure):
    """The user's own or a changed file has the name: ``--overwrite`` replaces it."""

    def __init__(self, text: str) -> None:
        """Make a failure with the message ``text``."""
        super().__init__("never", text)


def without_secrets(text: str) -> str:
    """``text`` with signatures removed from addresses."""
    return _SECRET.sub(r"\1=…", text)


def failure_of(error: BaseException, where: str) -> Failure:
    """Classify an exception of the file system or a connection by type and ``errno``; ``where`` names the object."""
    if isinstance(error, Failure):
        text = f"{where}: {error}"
        return Failure(error.kind, text, status=error.status, retry_after_s=error.retry_after_s)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Failure(_kind(error), f"{where}: {short(text) or type(error).__name__}")


def status_failure(status: int, where: str, said: str = "", retry_after: str | None = None) -> Failure:
    """The failure that an HTTP status means.

    Args:
        status: of the response.
        where: names the object.
        said: the server's message.
        retry_after: value of its ``Retry-After`` header; None: no such header.
    """
    text = f"{where}: HTTP status {status}" + (f": {short(said)}" if said else "")
    wait = float(retry_after) if retry_after and retry_after.strip().isdecimal() else None
    return Failure(kind_of_status(status), text, status=status, retry_after_s=wait)


def kind_of_status(status: int) -> Kind:
    """The kind of failure that an HTTP status means."""
    if status in (429, 503):
        return "busy"
    if status in (401, 403):
        return "denied"
    if status in (404, 410):
        return "gone"
    if status == 412:
        return "changed"
    return "again" if status in (408, 425) or (status >= 500 and status not in (501, 505)) else "never"


def short(text: str) -> str:
    """``text`` on one line, cut to ``LONGEST_TEXT``."""
    return " ".join(text.split())[:LONGEST_TEXT]


def _kind(error: BaseException) -> Kind:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "never"
    if isinstance(error, socket.gaierror):  # its numbers are not those of errno
        return "never" if error.errno == socket.EAI_NONAME else "again"
    if isinstance(error, ssl.SSLError):
        return "again"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "gone"
    if isinstance(error, PermissionError):
        return "denied"
    if isinstance(error, OSError) and error.errno is not None:
        return _BY_ERRNO.get(error.errno, "again")
    return "never" if isinstance(error, ValueError) else "again"
