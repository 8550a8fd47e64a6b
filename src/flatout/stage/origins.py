"""Where data come from: object stores and HTTP through one library, folders and mounts through the file system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from flatout.errors import UsageError
from flatout.stage.failures import Failure, failure_of

STORE_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "memory")
Buffer = Any  # what has the buffer protocol; collections.abc.Buffer begins with Python 3.12
LIST_SUFFIXES = (".txt", ".lst")  # of lists of web addresses, one a line
PAGE = 1_000  # objects a listing request gives at most, on every store


class Entry(NamedTuple):
    """One object of an origin."""

    key: str  # below the origin's root, with forward slashes
    size: int
    version: str  # changes when the content does: ETag, or size and time of the last change


class Origin(Protocol):
    """Objects that can be listed and read, from several threads at once."""

    address: str  # for people and the manifest; never holds credentials

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All objects below ``prefix``, a page at a time."""

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""

    def read(self, entry: Entry, start: int = 0, length: int | None = None) -> Buffer:
        """Bytes of an object; raises Failure."""


@dataclass(frozen=True)
class StoreOptions:
    """How to reach an object store; what is None comes from the environment or the instance's role."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False


def open_origin(source: str, options: StoreOptions = StoreOptions()) -> Origin:
    """The origin that an address names.

    Args:
        source: ``s3://bucket/prefix`` (``gs``, ``az``), ``https://`` of a list or of one file, a local list of
            addresses (``.txt``), ``file:///folder``, or a folder.
        options: how to reach a store.

    Raises:
        UsageError: no such folder, or an address that no library here knows.
    """
    scheme = urlsplit(source).scheme if re.match(r"[a-z][a-z0-9+.-]+://", source) else ""
    if scheme in STORE_SCHEMES:
        return StoreOrigin(source, options)
    if scheme in ("http", "https") or (not scheme and source.endswith(LIST_SUFFIXES) and Path(source).is_file()):
        from flatout.stage.web import WebOrigin

        return WebOrigin(source)
    if scheme not in ("", "file"):
        known = ", ".join((*STORE_SCHEMES[:4], "file"))
        raise UsageError(f"{source}: unknown kind of address {scheme!r}: known are {known}, or a folder")
    return FolderOrigin(Path(source.removeprefix("file://")))


class StoreOrigin:
    """An object store, by obstore's synchronous interface."""

    def __init__(self, source: str, options: StoreOptions) -> None:
        """Open the store; nothing is asked of it yet."""
        import obstore

        parts = urlsplit(source)
        if parts.username or parts.password:
            raise UsageError(
                f"{parts.scheme}://…: credentials do not belong into an address: use --profile or the environment"
            )
        self.address = source.rstrip("/")
        self._obstore = obstore
        self._store = _open_store(source, parts.scheme, options)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All objects below ``prefix``; folder markers are left out."""
        try:
            for page in self._obstore.list(self._store, prefix or None, chunk_size=PAGE):
                for meta in page:
                    if not meta["path"].endswith("/"):
                        yield Entry(meta["path"], meta["size"], _version(meta))
        except Exception as error:
            raise failure_of(error, self.address) from error

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""
        try:
            found = self._obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
        except Exception as error:
            raise failure_of(error, self.address) from error
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def read(self, entry: Entry, start: int = 0, length: int | None = None) -> Buffer:
        """Bytes of an object, or of a range of it. A range is only read of the version that was listed."""
        try:
            if length is None:
                return self._obstore.get(self._store, entry.key).bytes()
            options: Any = {"range": (start, start + length)}
            if entry.version.startswith('"'):
                options["if_match"] = entry.version
            return self._obstore.get(self._store, entry.key, options=options).bytes()
        except Exception as error:
            raise failure_of(error, f"{self.address}/{entry.key}") from error


def _version(meta: Any) -> str:
    return meta["e_tag"] or f"{meta['size']}:{meta['last_modified'].timestamp():.6f}"


def _open_store(source: str, scheme: str, options: StoreOptions) -> Any:
    from obstore.store import from_url

    if scheme == "memory":
        return from_url("memory:///")
    config: Any = {}
    client: Any = {"timeout": "60s", "connect_timeout": "10s", "pool_max_idle_per_host": "256"}
    # flatout retries by itself: it has to see every "slow down" to go slower.
    retry: Any = {"max_retries": 0}
    if options.anonymous:
        config["skip_signature"] = True
    if scheme in ("s3", "s3a"):
        endpoint = options.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            config["endpoint"] = endpoint
            client["allow_http"] = endpoint.startswith("http://")
        region = options.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if region or endpoint:
            config["region"] = region or "us-east-1"
        config.update(profile_credentials(options.profile))
    elif options.endpoint:
        config["endpoint"] = options.endpoint
        client["allow_http"] = options.endpoint.startswith("http://")
    try:
        return from_url(source, config=config or None, client_options=client, retry_config=retry)
    except Exception as error:
        raise UsageError(f"{source}: {_first_line(error)}") from None


def profile_credentials(name: str | None) -> dict[str, str]:
    """Keys of a profile in the AWS configuration files, as obstore takes them; empty without a name.

    Raises:
        UsageError: no such profile, or one without keys of its own.
    """
    if name is None:
        return {}
    import configparser

    home = Path.home() / ".aws"
    found: dict[str, str] = {}
    for file, section in (
        (Path(os.environ.get("AWS_CONFIG_FILE", home / "config")), f"profile {name}"),
        (Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials")), name),
    ):
        parser = configparser.RawConfigParser()
        parser.read(file)
        for candidate in (section, name):
            if parser.has_section(candidate):
                found.update(parser.items(candidate))
    if "aws_access_key_id" not in found:
        raise UsageError(f"--profile {name}: no such profile with keys in the AWS configuration files")
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
             "aws_session_token": "session_token", "region": "region", "endpoint_url": "endpoint"}  # fmt: skip
    return {ours: found[theirs] for theirs, ours in names.items() if theirs in found}


class FolderOrigin:
    """A folder: local, or any mounted file system."""

    def __init__(self, root: Path) -> None:
        """Take the folder.

        Raises:
            UsageError: there is none, or it cannot be read.
        """
        self.root = root.absolute()
        self.address = str(self.root)
        if not self.root.is_dir():
            raise UsageError(f"{root}: no such folder")
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise UsageError(f"{root}: not readable")

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All files below ``prefix``; links to folders are not followed."""
        pending = [self.root / prefix] if prefix else [self.root]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(folder) as found:
                    files = []
                    for item in found:
                        if item.is_dir(follow_symlinks=False):
                            pending.append(Path(item.path))
                        elif item.is_file():
                            files.append(item)
                    for item in files:
                        stat = item.stat()
                        key = os.path.relpath(item.path, self.root)
                        yield Entry(key, stat.st_size, f"{stat.st_size}:{stat.st_mtime_ns}")
            except OSError as error:
                raise failure_of(error, str(folder)) from error

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""
        try:
            with os.scandir(self.root / prefix) as found:
                return sorted(item.name for item in found if item.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure_of(error, str(self.root / prefix)) from error

    def read(self, entry: Entry, start: int = 0, length: int | None = None) -> Buffer:
        """Bytes of a file, or of a range of it."""
        try:
            with open(self.root / entry.key, "rb", buffering=0) as file:
                return os.pread(file.fileno(), entry.size if length is None else length, start)
        except OSError as error:
            raise failure_of(error, str(self.root / entry.key)) from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


__all__ = ["Entry", "Failure", "FolderOrigin", "Origin", "StoreOptions", "StoreOrigin", "open_origin"]
