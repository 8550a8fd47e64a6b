"""One zip of a run's trace and of torch's kernel traces, all on one time axis."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

from flatout.export.perfetto import write_perfetto
from flatout.export.timeline import Timeline
from flatout.record import Run

_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d{1,19})')
_OF_PROCESS = re.compile(r"trace-(\d{1,9})\b")
_MOST_BYTES = 1 << 30  # of a kernel trace, unpacked
_TAIL = 1 << 16


def kernel_traces(run: Run, pids: Collection[int]) -> tuple[list[Path], list[str]]:
    """The readable kernel traces of some processes of a run, and why others are left out."""
    found, left_out = [], []
    for path in sorted(run.path.glob("trace-*.json.gz")):
        of = _OF_PROCESS.match(path.name)
        if of is not None and int(of[1]) not in pids:
            continue
        try:
            base_time_ns(path)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            left_out.append(f"{path.name} cannot be read ({error}): it is left out")
        else:
            found.append(path)
    return found, left_out


def base_time_ns(path: Path) -> int:
    """The wall clock at time 0 of a kernel trace.

    torch writes microseconds since ``baseTimeNanoseconds``.

    Raises:
        ValueError: the trace does not say, or is too large.
    """
    with gzip.open(path) as file:
        head = file.read(_TAIL)
        found = _BASE.search(head)
        rest = head
        read = len(head)
        while found is None and rest:
            tail = rest[-64:]
            rest = file.read(_TAIL * 16)
            read += len(rest)
            if read > _MOST_BYTES:
                raise ValueError("it is larger than 1 GiB")
            found = _BASE.search(tail + rest)
    if found is None:
        raise ValueError("it does not say when its clock began")
    return int(found[1])


def write_archive(file: IO[bytes], timelines: Sequence[Timeline], runs: Sequence[Run], kernels: Sequence[Path]) -> None:
    """Write a zip that Perfetto opens as one trace.

    The kernel traces are copied as they are; flatout's own times are shifted onto the clock of the first of them, and
    the manifest says so for viewers that read it.
    """
    base_ns = base_time_ns(kernels[0]) if kernels else min(timeline.offset_ns for timeline in timelines)
    own = io.BytesIO()
    write_perfetto(own, timelines, base_ns)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr("flatout.pftrace", own.getvalue())
        for number, path in enumerate(kernels):
            archive.writestr(f"kernels-{number}-{path.name}", path.read_bytes(), zipfile.ZIP_STORED)
        archive.writestr("perfetto_manifest", json.dumps(_manifest(runs, kernels, base_ns), indent=1))


def _manifest(runs: Sequence[Run], kernels: Sequence[Path], base_ns: int) -> dict[str, object]:
    ids = " ".join(run.id for run in runs)
    files: list[dict[str, object]] = [{"path": "flatout.pftrace", "attributes": {"runs": ids}}]
    files += [{"path": f"kernels-{number}-{path.name}"} for number, path in enumerate(kernels)]
    return {"version": 1, "attributes": {"wall_clock_of_0_ns": base_ns}, "files": files}
