#!/usr/bin/env python3
"""All that can only be seen on a machine with a GPU, in one command of at most 40 minutes.

    make gpu-check                                # writes docs/measurements/gpu.md
    make gpu-check ARGS="--sections faults"       # a part of it
    make gpu-check ARGS=--dry-run                 # its own code, on the tests' fake GPU; writes nothing

What was measured stays in .flatout/gpu-check.json: called again, it goes on where it was cut off.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "shared")]

from accounts import ACCOUNTS, COST  # noqa: E402
from conditions import head  # noqa: E402
from faults import FAULTS  # noqa: E402
from journal import Journal  # noqa: E402
from memory import MEMORY  # noqa: E402
from running import ROOT, Bench, Failed  # noqa: E402
from section import Section  # noqa: E402
from settings import INJECTED  # noqa: E402
from trainings import DECODERS, LOOP, SHARING, TESTS  # noqa: E402

SECTIONS = (TESTS, ACCOUNTS, FAULTS, INJECTED, COST, MEMORY, LOOP, DECODERS, SHARING)
PACKAGES = ("flatout", "torch", "torchvision", "timm", "pytorch-lightning", "nvidia-ml-py")
MINUTES = 40


def main() -> int:
    """Measure what is missing, then write the page; exit code 1 where a goal is missed, 2 without a GPU."""
    options = _options()
    device = "a fake GPU: no figure here means anything" if options.dry_run else _device()
    if device is None:
        print("gpu-check: torch sees no CUDA device: --dry-run tries the check's own code", file=sys.stderr)
        return 2
    versions = {name: metadata.version(name) for name in PACKAGES}
    journal = Journal(options.journal, {"device": device, "Python": platform.python_version(), **versions})
    over_s = time.monotonic() + 60 * options.minutes
    chosen = [section for section in SECTIONS if section.name in (options.sections or [s.name for s in SECTIONS])]
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as name:
        bench = Bench(options.dry_run, Path(name), options.runs_dir or Path(name) / "runs")
        try:
            for section in chosen:
                bench.until_s = min(over_s, time.monotonic() + 60 * section.minutes)
                measure(section, bench, journal)
        except KeyboardInterrupt:
            print("gpu-check: interrupted; called again, it goes on from here", file=sys.stderr)
            return 130
    text = page(journal, device)
    print(text)
    if not options.dry_run:
        options.output.write_text(text, "utf-8")
    rows = [row for section in chosen for row in journal.rows(section.name).values()]
    # On the fake GPU it only matters that everything runs.
    return int(any(row["failed"] or (row["met"] is False and not options.dry_run) for row in rows))


def measure(section: Section, bench: Bench, journal: Journal) -> None:
    """Measure the items of a section that are not in the journal, within its time."""
    for item, take in section.items(bench).items():
        if journal.find(section.name, item) is not None:
            continue
        print(f"gpu-check: {section.name}: {item}", file=sys.stderr, flush=True)
        if time.monotonic() >= bench.until_s:
            journal.note(section.name, item, [], None, "not measured: out of time; call again to go on")
            continue
        try:
            row = take()
        except Exception as error:  # the other items are measured all the same
            why = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            print(f"gpu-check: {section.name}: {item}: {why}", file=sys.stderr, flush=True)
            journal.note(section.name, item, [], None, why)
        else:
            journal.note(section.name, item, row.cells, row.met)


def page(journal: Journal, device: str) -> str:
    """The page for docs/measurements."""
    lines = [*head("On a GPU", "benchmarks/gpu/check.py", PACKAGES, {}, device), ""]
    for section in SECTIONS:
        lines += [f"## {section.title}", "", f"Goal: {section.goal}.", ""]
        rows = journal.rows(section.name)
        if not rows:
            lines += ["Not measured.", ""]
            continue
        lines += [f"| | {' | '.join(section.head)} | |", "|" + "---|" * (len(section.head) + 2)]
        for item, row in rows.items():
            cells = row["cells"] or [row["failed"] or "", *[""] * (len(section.head) - 1)]
            verdict = "failed" if row["failed"] else {True: "met", False: "NOT met", None: ""}[row["met"]]
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in [item, *cells, verdict]) + " |")
        lines.append("")
    return "\n".join(lines)


def _device() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    seen = torch.cuda.get_device_properties(0)
    memory = f"{seen.total_memory / 2**30:.0f} GiB"
    return f"{seen.name}, {memory}, compute {seen.major}.{seen.minor}, CUDA {torch.version.cuda}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [section.name for section in SECTIONS]
    parser.add_argument("--sections", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help=f"in all (default: {MINUTES})")
    parser.add_argument("--dry-run", action="store_true", help="on the fake GPU of the tests, tiny")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="(default: .flatout/gpu-check.json)")
    parser.add_argument("--runs-dir", type=Path, metavar="FOLDER", help="keep the records there")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "measurements" / "gpu.md", metavar="FILE.md")
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error(f"--minutes is {options.minutes:g}, but must be above 0")
    if options.journal is None:
        stamp = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
        name = f"gpu-check-dry-{stamp}.json" if options.dry_run else "gpu-check.json"
        options.journal = (Path(tempfile.gettempdir()) if options.dry_run else ROOT / ".flatout") / name
    return options


if __name__ == "__main__":
    sys.exit(main())
