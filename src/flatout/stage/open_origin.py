"""Which source an address names."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.failures import without_secrets
from flatout.stage.folder_origin import FolderOrigin
from flatout.stage.origins import LIST_SUFFIXES, Origin, StoreOptions

S3_SCHEMES = ("s3", "s3a")
STORE_SCHEMES = (*S3_SCHEMES, "gs", "az", "azure", "abfs", "abfss", "adl", "memory")


def open_origin(source: str, options: StoreOptions | None = None) -> Origin:
    """The origin that an address names.

    Args:
        source: ``s3://bucket/prefix`` (``gs``, ``az``), ``https://`` of a list or of one file, a local list of
            addresses (``.txt``), ``file:///folder``, or a folder.
        options: how to reach a store.

    Raises:
        UsageError: no such folder, or an address that no library here knows.
    """
    options = options or StoreOptions()
    if not source:
        raise UsageError("the source is empty: give s3://bucket/prefix, https://…, or a folder (. for this one)")
    begins = re.match(r"([a-z][a-z0-9+.-]+)://", source)
    scheme = begins[1] if begins else ""
    if scheme in S3_SCHEMES:
        from flatout.stage.s3 import S3Origin

        return S3Origin(source, options)
    if scheme in STORE_SCHEMES:
        from flatout.stage.store import StoreOrigin

        return StoreOrigin(source, options)
    if scheme in ("http", "https") or (not scheme and source.endswith(LIST_SUFFIXES) and Path(source).is_file()):
        from flatout.stage.web import WebOrigin

        return WebOrigin(source)
    if scheme not in ("", "file"):
        known = ", ".join((*STORE_SCHEMES[:4], "file"))
        shown = without_secrets(re.sub(r"//[^/@]*@", "//…@", source))
        raise UsageError(f"{shown}: unknown kind of address {scheme!r}: known are {known}, or a folder")
    return FolderOrigin(Path(source.removeprefix("file://")))
