"""Which source an address names."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.sources.base import LIST_SUFFIXES, Source, StoreOptions
from flatout.stage.sources.failures import without_secrets
from flatout.stage.sources.folder import FolderSource

S3_SCHEMES = ("s3", "s3a")
STORE_SCHEMES = (*S3_SCHEMES, "gs", "az", "azure", "abfs", "abfss", "adl", "memory")


def open_source(address: str, options: StoreOptions | None = None) -> Source:
    """The source that an address names.

    Args:
        address: ``s3://bucket/prefix`` (``gs``, ``az``), ``https://`` of a list or of one file, a local list of
            addresses (``.txt``), ``file:///folder``, or a folder.
        options: how to reach a store.

    Raises:
        UsageError: no such folder, or an address that no library here knows.
    """
    options = options or StoreOptions()
    if not address:
        raise UsageError("the source is empty: give s3://bucket/prefix, https://…, or a folder (. for this one)")
    begins = re.match(r"([a-z][a-z0-9+.-]+)://", address)
    scheme = begins[1] if begins else ""
    if scheme in S3_SCHEMES:
        from flatout.stage.sources.s3.source import S3Source

        return S3Source(address, options)
    if scheme in STORE_SCHEMES:
        from flatout.stage.sources.store import StoreSource

        return StoreSource(address, options)
    if scheme in ("http", "https") or (not scheme and address.endswith(LIST_SUFFIXES) and Path(address).is_file()):
        from flatout.stage.sources.web import WebSource

        return WebSource(address)
    if scheme not in ("", "file"):
        known = ", ".join((*STORE_SCHEMES[:4], "file"))
        shown = without_secrets(re.sub(r"//[^/@]*@", "//…@", address))
        raise UsageError(f"{shown}: unknown kind of address {scheme!r}: known are {known}, or a folder")
    return FolderSource(Path(address.removeprefix("file://")))
