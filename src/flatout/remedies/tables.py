"""Remedies for tables and texts that are parsed for their samples."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.fetch_changes import DECODE_GROUPS, TABLE_PACKAGES, TEXT_PACKAGES, reads_again, without_groups
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause
from flatout.units import size

# Of the free memory, for the tables of all processes: caches of files and the training keep the rest.
_SHARE = 0.25
# Part of the parsing that copying a table takes instead, usually and at the worst: 0.05 to 0.2 ms of 3.5 to 8 ms were
# measured for a CSV file of 1 MB and a Parquet file of 6 MB.
_COPIED, _MOST_COPIED = 0.05, 0.4


@remedy(("read_amplification", "cpu_decode", "cpu_read"), IDENTICAL, risk="low")
def tables_once(context: Context, cause: Cause) -> Proposal | None:
    """Parse each table once: where samples are rows of it, or passes repeat."""
    loader, available = context.run.loading, context.run.usage.available_bytes
    package = loader.functions.packages.get("decode") if loader is not None else None
    if loader is None or available is None or package not in TABLE_PACKAGES:
        return None
    if cause.id != "read_amplification" and not reads_again(loader):
        return None
    room = int(_SHARE * available / max(loader.settings.num_workers, 1))
    groups = (*DECODE_GROUPS, "read")
    return Proposal(
        title="parse each table once, and keep it in memory",
        change=without_groups(loader, groups, 1.0 - _COPIED),
        least=without_groups(loader, groups, 1.0 - _MOST_COPIED) if cause.id == "read_amplification" else Change(),
        most=without_groups(loader, groups),
        how=f"read the table in Dataset.__init__ ({package}), and take rows of its columns, as arrays, in __getitem__",
        settings={"table_cache_bytes": room},
        basis="measured share of parsing, from the second reading of a file on; assumes that a copy of the table takes "
        f"a twentieth of it, at worst two fifths; each process keeps the tables that it reads, up to {size(room)}",
        memory_bytes=None,
    )


@remedy(("read_amplification", "cpu_decode"), IDENTICAL, risk="low")
def texts_once(context: Context, cause: Cause) -> Proposal | None:
    """Parse each text file once: where its records are samples, or passes repeat."""
    loader = context.run.loading
    package = loader.functions.packages.get("decode") if loader is not None else None
    if loader is None or package not in TEXT_PACKAGES:
        return None
    shared = cause.id == "read_amplification"
    if not shared and not reads_again(loader):
        return None
    groups = (*DECODE_GROUPS, "read")
    return Proposal(
        title="parse each file once, not for each sample" if shared else "parse each file once, not in each epoch",
        change=without_groups(loader, groups, 1.0 - _COPIED),
        least=without_groups(loader, groups, 0.5) if shared else Change(),
        most=without_groups(loader, groups),
        how="parse in Dataset.__init__, and keep numbers there as arrays; return a record of them in __getitem__",
        basis="measured share of reading and parsing; assumes that taking a record leaves a twentieth of it, at worst "
        "half",
        memory_bytes=None,
    )
