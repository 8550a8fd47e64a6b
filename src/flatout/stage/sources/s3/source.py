"""S3 and compatible stores: requests signed here, over kept-alive connections."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from flatout.stage.sources.base import ObjectInfo, Source, StoreOptions
from flatout.stage.sources.failures import Failure, status_failure
from flatout.stage.sources.http_get import PlainGets
from flatout.stage.sources.http_requests import REDIRECTS, HttpRequests, range_headers, wanted_pieces
from flatout.stage.sources.retries import retry_budget_s, with_retries
from flatout.stage.sources.s3.address import S3Address
from flatout.stage.sources.s3.credentials import Credentials
from flatout.stage.sources.s3.listing import Advance, Page, page_of
from flatout.stage.sources.s3.signing import signed
from flatout.stage.sources.s3.xml import error_text
from flatout.stage.sources.store_facts import Facts, facts_of, size_in

PAGE = 1_000  # most objects per listing request, on every store
SIGNED_FOR_S = 900  # used at once, but S3 tolerates clocks that differ by this much
ERROR_BYTES = 64 << 10
_REGION = "x-amz-bucket-region"


class S3Source(Source):
    """A bucket, a prefix of it, or one object."""

    def __init__(self, address: str, options: StoreOptions) -> None:
        """Resolve server and keys; no request is made yet.

        Raises:
            UsageError: an address or an endpoint that cannot be used, or no credentials.
        """
        self._place = S3Address.of(address, options)
        self.address = self._place.shown
        self.server = urlsplit(self._place.endpoint or "").netloc
        self._base = f"{self._place.prefix}/" if self._place.prefix else ""
        self._region = self._place.region
        self._credentials = None if options.anonymous else Credentials(options.profile)
        self._gets = PlainGets()
        self._requests = HttpRequests(follow=False)  # another server must not see a session token, nor send data

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below ``prefix`` but folder markers, with keys as stored.

        Keys repeated on the same or the next page are dropped; keys without a size are in ``skipped``. An address with
        nothing below it may be that of one object.

        Raises:
            Failure: a page failed, also when retried.
            UsageError: credentials expired, and cannot be renewed.
        """
        below = f"{self._base}{prefix}/" if prefix else self._base
        found = False
        before: set[str] = set()  # keys of the last page
        for page in self._pages({"prefix": below}):
            now: set[str] = set()
            for key, said in page.unsized:
                found = True
                name = key.removeprefix(self._base)
                self.skipped.fail(name, f"{name[:80]!r}: the listing gives it no size ({said[:20]!r})")
            for key, size, version in page.objects:
                found = True
                if key in now or key in before:
                    continue
                now.add(key)
                if size or not key.endswith("/"):  # consoles make such objects for folders
                    yield ObjectInfo(key.removeprefix(self._base), size, version)
            before = now
        if not found and not prefix and self._base and not self._place.is_folder:
            yield from self._single()

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted; raises as :meth:`objects` does."""
        below = f"{self._base}{prefix}/" if prefix else self._base
        pages = self._pages({"prefix": below, "delimiter": "/"})
        names = {folder.removeprefix(below).rstrip("/") for page in pages for folder in page.folders}
        return sorted(names - {"", ".", ".."})

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of an object, or of a range of the version that was listed, in pieces."""
        where = f"{self.address}/{obj.key}"
        read = functools.partial(self._read, obj, start, length, where)
        yield from self._gets.stream(self.url(obj.key), buffer, read, where, start, length, obj.version)

    def facts(self, obj: ObjectInfo, part: int | None = None) -> Facts | None:
        """The store's report about an object, with checksums, or about one of its stored parts."""
        asked = {"x-amz-checksum-mode": "ENABLED"}
        if part is not None:
            asked["partNumber"] = str(part)
        try:
            answer = self._ask("HEAD", f"{self._base}{obj.key}", asked, f"{self.address}/{obj.key}")
        except Failure as failure:
            if failure.kind == "gone":
                raise
            return None  # the next request fails with the reason
        return facts_of({"x-amz-request-id": "", **answer.headers})

    def url(self, key: str, parameters: Mapping[str, str] | None = None) -> str:
        """Presigned address of an object, valid for a quarter of an hour.

        Args:
            key: below the source's root.
            parameters: of the query, signed with it.

        Raises:
            UsageError: credentials expired, and cannot be renewed.
        """
        return self._signed("GET", f"{self._base}{key}", parameters or {})

    def _signed(self, method: str, key: str, parameters: Mapping[str, str]) -> str:
        server, path = self._place.server(self._region)
        keys = None if self._credentials is None else self._credentials.keys()
        where = f"{path}/{key}" if key or not path else path
        return signed(method, server, where, parameters, keys, self._region, SIGNED_FOR_S)

    def _pages(self, parameters: Mapping[str, str]) -> Iterator[Page]:
        following: dict[str, str] | None = {}
        advance = Advance(self.address)
        while following is not None:
            asked = {"list-type": "2", "max-keys": str(PAGE), "encoding-type": "url", **parameters, **following}
            page = with_retries(functools.partial(self._page, asked), self.tell_failure, self.stopped, self._give_up_s)
            advance.see(page)
            yield page
            if page.next == following and following:
                raise Failure("never", f"{self.address}: the server gives the same page of its listing again")
            following = page.next

    def _page(self, parameters: Mapping[str, str]) -> Page:
        where = f"{self.address}: listing"
        answer = self._ask("GET", "", parameters, where)
        page = page_of(self._requests.body(answer, where))
        if page is None:
            raise Failure("again", f"{where}: the answer is no listing", status=answer.status)
        return page

    def _single(self) -> Iterator[ObjectInfo]:
        """The object whose own address was given."""
        key = self._base.rstrip("/")
        where = self.address
        try:
            answer = with_retries(lambda: self._ask("HEAD", key, {}, where), self.tell_failure, self.stopped)
        except Failure as failure:
            # Without the right to list, S3 answers 403 for an object that does not exist.
            if failure.status in (403, 404):
                return
            raise
        size = size_in(answer.headers.get("Content-Length", ""))
        if size is None:
            raise Failure("never", f"{where}: the server does not say how large it is")
        folder, slash, name = key.rpartition("/")
        self._base = folder + slash
        yield ObjectInfo(name, size, answer.headers.get("ETag") or f"{size}:{answer.headers.get('Last-Modified', '')}")

    def _read(self, obj: ObjectInfo, start: int, length: int | None, where: str) -> Iterator[bytes]:
        answer = self._ask("GET", f"{self._base}{obj.key}", {}, where, range_headers(obj.version, start, length))
        yield from wanted_pieces(self._requests, answer, where, start, length, obj.version)

    def _ask(
        self,
        method: str,
        key: str,
        parameters: Mapping[str, str],
        where: str,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """A successful response; raises Failure for any other."""
        answer = self._requests.request(method, self._signed(method, key, parameters), where, headers)
        region = answer.headers.get(_REGION)
        if answer.status in (301, 307, 400, 403) and region and region != self._region and not self._place.endpoint:
            answer.close()
            self._region = region
            answer = self._requests.request(method, self._signed(method, key, parameters), where, headers)
        if answer.status in (200, 206):
            return answer
        if answer.status in REDIRECTS:
            answer.close()
            raise Failure(
                "never", f"{where}: the server redirects elsewhere: give its own --endpoint or --region",
                status=answer.status,
            )  # fmt: skip
        said = error_text(self._requests.body(answer, where, ERROR_BYTES)) if method == "GET" else ""
        raise status_failure(answer.status, where, said, answer.headers.get("Retry-After"))

    def _give_up_s(self) -> float:
        return retry_budget_s(bool(self._requests.answered))
