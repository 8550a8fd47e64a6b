"""What can go wrong with one object, sorted by what to do about it."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["busy", "again", "gone", "denied", "changed", "never"]
# obstore words a server's answer as "status 503 …" or "503 Service Unavailable"; the numbers are HTTP's.
_STATUS = re.compile(r"\b(?:status(?: code)?:? ?|HTTP/?[0-9.]* ?|error \()?(40[0-9]|41[26]|429|50[0-4])\b")
_SECRET = re.compile(r"(X-Amz-(?:Signature|Credential|Security-Token)|sig|AWSAccessKeyId|Signature)=[^&\s\"']+", re.I)


class Failure(Exception):
    """One object, or the listing, could not be read.

    Attributes:
        kind: ``busy`` (the store asks to go slower), ``again`` (worth another try), ``gone``, ``denied``,
            ``changed`` (another version than the one listed) or ``never``.
    """

    def __init__(self, kind: Kind, text: str) -> None:
        """Make a failure that says ``text``, without credentials."""
        super().__init__(_SECRET.sub(r"\1=…", text))
        self.kind = kind


def failure_of(error: BaseException, where: str) -> Failure:
    """Sort an exception of obstore or of the file system; ``where`` names the object."""
    text = " ".join(str(error).split())[:400] or type(error).__name__
    return Failure(_kind(error, text), f"{where}: {text}")


def _kind(error: BaseException, text: str) -> Kind:
    if isinstance(error, Failure):
        return error.kind
    name = type(error).__name__
    by_name: dict[str, Kind] = {
        "NotFoundError": "gone",
        "FileNotFoundError": "gone",
        "PermissionDeniedError": "denied",
        "UnauthenticatedError": "denied",
        "PermissionError": "denied",
        "PreconditionError": "changed",
        "IsADirectoryError": "never",
        "InvalidPathError": "never",
    }
    if name in by_name:
        return by_name[name]
    if "SlowDown" in text or "Too Many Requests" in text:
        return "busy"
    status = _STATUS.search(text)
    if status:
        code = int(status[1])
        if code in (429, 503):
            return "busy"
        if code in (401, 403):
            return "denied"
        if code == 404:
            return "gone"
        if code == 412:
            return "changed"
        return "again" if code >= 500 or code == 408 else "never"
    return "again"
