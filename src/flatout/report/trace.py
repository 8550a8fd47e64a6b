"""What was written for a trace viewer, and how to open it."""

from __future__ import annotations

import textwrap

from flatout.export.writing import Written
from flatout.units import counted, size

_OPEN = {
    "perfetto": "open it at ui.perfetto.dev (`Open trace file`): it stays in your browser",
    "chrome": "open it at ui.perfetto.dev or chrome://tracing: it stays in your browser",
    "speedscope": "open it at speedscope.app: it stays in your browser",
}


def lines(written: Written) -> list[str]:
    """The file with what is in it, where it can be opened, and the problems of the record; at most 80 columns wide."""
    what = "stack sample" if written.format == "speedscope" else "slice"
    content = counted(written.slices, what)
    if written.kernels:
        content += f", {counted(written.kernels, 'kernel trace')} of torch's profiler"
    found = [f"{written.path}", f"  {size(written.bytes)}: {content}", f"  {_OPEN[written.format]}"]
    for note in written.notes:
        found += textwrap.wrap(note, 80, initial_indent="  note: ", subsequent_indent="    ")
    return found
