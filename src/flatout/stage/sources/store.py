"""Object stores of Google and Azure, through obstore's synchronous interface."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from flatout.errors import UsageError
from flatout.stage.sources.base import ObjectInfo, Source, StoreOptions
from flatout.stage.sources.failures import Failure, Kind, kind_of_status, short
from flatout.stage.sources.retries import with_retries
from flatout.stage.sources.s3.address import checked_endpoint

PAGE = 1_000  # most objects per listing request, on every store
LIBRARY_BYTES = 4 << 20  # of a large object, given by the library
# obstore reports the HTTP status only in the text of its exceptions, after the address, which holds no blanks.
_STATUS = re.compile(r" - Server returned (?:non-2xx status code|error response): (\d{3})\b")


class StoreSource(Source):
    """An object store accessed through obstore."""

    def __init__(self, address: str, options: StoreOptions) -> None:
        """Open the store; no request is made yet.

        Raises:
            UsageError: the address cannot be used.
        """
        import obstore

        parts = urlsplit(address)
        if parts.username or parts.password:
            raise UsageError(f"{parts.scheme}://…: credentials do not belong into an address: use the environment")
        self.address = address.rstrip("/")
        self._obstore = obstore
        self._store = _open_store(address, parts.scheme, options)

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below ``prefix`` but folder markers.

        Raises:
            Failure: a page failed, also when retried.
        """
        waiting: ObjectInfo | None = None
        for meta in self._metas(prefix):
            obj = ObjectInfo(meta["path"], meta["size"], _version(meta))
            # The library strips the slash from a marker; objects below it follow.
            if waiting is not None and not obj.key.startswith(f"{waiting.key}/"):
                yield waiting
            waiting = None
            if obj.size:
                yield obj
            else:
                waiting = obj
        if waiting is not None:
            yield waiting

    def _metas(self, prefix: str) -> Iterator[Any]:
        last: str | None = None
        pages: Iterator[Any] | None = None

        def page() -> Any:
            nonlocal pages
            try:
                if pages is None:
                    pages = iter(self._obstore.list(self._store, prefix or None, offset=last, chunk_size=PAGE))
                return next(pages, None)
            except Exception as error:
                pages = None  # the next try resumes after the last object
                raise _failure(error, f"{self.address}: listing") from error

        while found := with_retries(page, self.tell_failure, self.stopped):
            last = found[-1]["path"]
            yield from found

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted; raises as :meth:`objects` does."""

        def listed() -> Any:
            try:
                return self._obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
            except Exception as error:
                raise _failure(error, f"{self.address}: listing") from error

        found = with_retries(listed, self.tell_failure, self.stopped)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of an object, or of a range of the version that was listed, in pieces."""
        options: Any = {}
        if length is not None:
            options["range"] = (start, start + length)
            if obj.version.startswith('"'):
                options["if_match"] = obj.version
        try:
            answer = self._obstore.get(self._store, obj.key, options=options)
            if length is None and obj.size > LIBRARY_BYTES:
                for piece in answer.stream(min_chunk_size=LIBRARY_BYTES):
                    yield memoryview(piece)
            else:
                yield memoryview(answer.bytes())
        except Exception as error:
            raise _failure(error, f"{self.address}/{obj.key}") from error


def _version(meta: Any) -> str:
    return meta["e_tag"] or f"{meta['size']}:{meta['last_modified'].timestamp():.6f}"


def _failure(error: Exception, where: str) -> Failure:
    """Classify an exception of obstore by its type."""
    from obstore import exceptions as known

    text = short(str(error)) or type(error).__name__
    status = _STATUS.search(text)
    code = int(status[1]) if status else None
    by_type: tuple[tuple[Any, Kind], ...] = (
        (known.NotFoundError, "gone"),
        (FileNotFoundError, "gone"),
        ((known.PermissionDeniedError, known.UnauthenticatedError, PermissionError), "denied"),
        (known.PreconditionError, "changed"),
        ((known.InvalidPathError, known.NotSupportedError, known.UnknownConfigurationKeyError), "never"),
    )
    kind = next((kind for types, kind in by_type if isinstance(error, types)), None)
    if kind is None:
        kind = "again" if code is None else kind_of_status(code)
    return Failure(kind, f"{where}: {text}", status=code)


def _open_store(address: str, scheme: str, options: StoreOptions) -> Any:
    from obstore.store import from_url

    if scheme == "memory":
        return from_url("memory:///")
    config: Any = {}
    client: Any = {"timeout": "60s", "connect_timeout": "10s", "pool_max_idle_per_host": "256"}
    # flatout retries itself: it lowers the concurrency at every "slow down".
    retries: Any = {"max_retries": 0}
    if options.anonymous:
        config["skip_signature"] = True
    if options.endpoint:
        config["endpoint"] = checked_endpoint(options.endpoint)
        client["allow_http"] = options.endpoint.startswith("http://")
    beginning, slash, path = address.partition("://")[2].partition("/")
    address = f"{scheme}://{beginning}{slash}{quote(path)}"  # '#', '?' and '%' belong to the key
    try:
        return from_url(address, config=config or None, client_options=client, retry_config=retries)
    except Exception as error:
        raise UsageError(f"{address}: {short(str(error).partition(chr(10))[0]) or type(error).__name__}") from None
