"""Object stores: S3 and what speaks it, Google's, Azure's."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flatout.errors import UsageError
from flatout.stage.failures import Failure, failure_of
from flatout.stage.http_get import PlainGets
from flatout.stage.origins import Entry, Origin, StoreOptions
from flatout.stage.store_facts import Facts, facts_of

PAGE = 1_000  # objects a listing request gives at most, on every store
LIBRARY_BYTES = 4 << 20  # of a large object, given by the library
SIGNED_FOR = timedelta(minutes=15)  # asked for at once; but clocks differ, and S3 lets them by so much


class StoreOrigin(Origin):
    """An object store, by obstore's synchronous interface; bytes of S3 by addresses that it signs, where that works."""

    def __init__(self, source: str, options: StoreOptions) -> None:
        """Open the store; nothing is asked of it yet."""
        import obstore

        parts = urlsplit(source)
        if parts.username or parts.password:
            raise UsageError(
                f"{parts.scheme}://…: credentials do not belong into an address: use --profile or the environment"
            )
        self.address = source.rstrip("/")
        self.server = _server(options) if parts.scheme in ("s3", "s3a") else ""
        self._obstore = obstore
        self._store = _open_store(source, parts.scheme, options)
        self._gets = PlainGets()
        self._anonymous = options.anonymous
        # Google's and Azure's signatures may need requests of their own: there the library reads.
        self._signer = None if parts.scheme not in ("s3", "s3a") else self._store
        if self._signer is not None and options.anonymous:
            self._signer = _open_store(source, parts.scheme, options, {"access_key_id": "-", "secret_access_key": "-"})

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

    def stream(
        self, entry: Entry, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of an object, or of a range of the version that was listed, in pieces."""
        where = f"{self.address}/{entry.key}"
        read = functools.partial(self._read, entry, start, length, where)
        url = self._url(entry.key)
        if url is None:
            for piece in read():
                yield memoryview(piece)
        else:
            yield from self._gets.stream(url, buffer, read, where, start, length, entry.version)

    def facts(self, entry: Entry, part: int | None = None) -> Facts | None:
        """What the store says of an object; None where it does not speak S3, and of parts."""
        if self._signer is None or part is not None:
            return None
        try:
            url = str(self._obstore.sign(self._signer, "HEAD", entry.key, SIGNED_FOR))
            answer = _heads().request("HEAD", url.partition("?")[0] if self._anonymous else url, redirect=False)
        except Exception:  # what is asked for next says why
            return None
        if answer.status == 404:
            raise Failure("gone", f"{self.address}/{entry.key}: no longer there")
        return facts_of({"x-amz-request-id": "", **answer.headers}) if answer.status == 200 else None

    def _url(self, key: str) -> str | None:
        """Address of an object that can be asked for by anybody for a while; None: there is none."""
        if self._signer is None:
            return None
        try:
            url = str(self._obstore.sign(self._signer, "GET", key, SIGNED_FOR))
        except Exception:  # a name or credentials that the library has to judge
            return None
        return url.partition("?")[0] if self._anonymous else url

    def _read(self, entry: Entry, start: int, length: int | None, where: str) -> Iterator[Any]:
        options: Any = {}
        if length is not None:
            options["range"] = (start, start + length)
            if entry.version.startswith('"'):
                options["if_match"] = entry.version
        try:
            answer = self._obstore.get(self._store, entry.key, options=options)
            if length is None and entry.size > LIBRARY_BYTES:
                yield from answer.stream(min_chunk_size=LIBRARY_BYTES)
            else:
                yield answer.bytes()
        except Exception as error:
            raise failure_of(error, where) from error


@functools.cache
def _heads() -> Any:
    import urllib3

    return urllib3.PoolManager(maxsize=256, retries=False, timeout=urllib3.Timeout(10, read=60))


def _server(options: StoreOptions) -> str:
    """Host and port of the endpoint; empty: the store's own."""
    endpoint = options.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return urlsplit(endpoint).netloc.rpartition("@")[2].lower()


def _version(meta: Any) -> str:
    return meta["e_tag"] or f"{meta['size']}:{meta['last_modified'].timestamp():.6f}"


def _open_store(source: str, scheme: str, options: StoreOptions, keys: dict[str, str] | None = None) -> Any:
    """The store; ``keys`` in place of those that the options lead to."""
    from obstore.store import from_url

    if scheme == "memory":
        return from_url("memory:///")
    config: Any = {}
    client: Any = {"timeout": "60s", "connect_timeout": "10s", "pool_max_idle_per_host": "256"}
    # flatout retries by itself: it has to see every "slow down" to go slower.
    retry: Any = {"max_retries": 0}
    if options.anonymous and keys is None:
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
        config.update(keys or {})
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


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
