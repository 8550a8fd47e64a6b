"""Opens the source that an address names, by its scheme."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.sources.base import LIST_SUFFIXES, Source, StoreOptions
from flatout.stage.sources.failures import without_secrets
from flatout.stage.sources.folder import FolderSource


def _folder(address: str, options: StoreOptions) -> Source:
    return FolderSource(Path(address.removeprefix("file://")))


def _s3(address: str, options: StoreOptions) -> Source:
    from flatout.stage.sources.s3.source import S3Source

    return S3Source(address, options)


def _obstore(address: str, options: StoreOptions) -> Source:
    from flatout.stage.sources.store import StoreSource

    return StoreSource(address, options)


def _web(address: str, options: StoreOptions) -> Source:
    from flatout.stage.sources.web import WebSource

    return WebSource(address)


# Scheme of an address -> function that opens it. Libraries are imported when an address needs them.
SCHEMES: dict[str, Callable[[str, StoreOptions], Source]] = {
    "s3": _s3,
    "gs": _obstore,
    "az": _obstore,
    "https": _web,
    "http": _web,
    "file": _folder,
    "s3a": _s3,
    "azure": _obstore,
    "abfs": _obstore,
    "abfss": _obstore,
    "adl": _obstore,
    "memory": _obstore,
}
STORE_SCHEMES = tuple(scheme for scheme, opener in SCHEMES.items() if opener in (_s3, _obstore))
_NAMED = 6  # schemes that an error lists


def open_source(address: str, options: StoreOptions | None = None) -> Source:
    """Open the source that an address names.

    Args:
        address: ``s3://bucket/prefix`` (``gs``, ``az``), ``https://`` of a list or of one file, a local list of
            addresses (``.txt``), ``file:///folder``, or a folder.
        options: how to reach a store.

    Raises:
        UsageError: no such folder, or an unknown scheme.
    """
    if not address:
        raise UsageError("the source is empty: give s3://bucket/prefix, https://…, or a folder (. for this one)")
    scheme = re.match(r"([a-z][a-z0-9+.-]+)://", address)
    if scheme is not None:
        opener = SCHEMES.get(scheme[1])
    else:
        opener = _web if address.endswith(LIST_SUFFIXES) and Path(address).is_file() else _folder
    if opener is None:
        shown = without_secrets(re.sub(r"//[^/@]*@", "//…@", address))
        known = ", ".join(list(SCHEMES)[:_NAMED])
        raise UsageError(
            f"{shown}: unknown scheme {scheme[1] if scheme else ''!r}: known are {known}, or give a folder"
        )
    return opener(address, options or StoreOptions())
