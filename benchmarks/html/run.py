#!/usr/bin/env python3
"""How large the HTML page of a run is, how long writing it takes, and how long until a browser shows it.

Records of growing length, laid down as the probe would write them; each page is written and opened several times, the
lengths in turn. Needs playwright and a headless Chromium.

Usage: python benchmarks/html/run.py [--steps N ...] [--rounds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared"), str(HERE.parent / "diagnosis_time"), str(HERE.parents[1])]

from conditions import head  # noqa: E402
from record import lay_down  # noqa: E402

from flatout.export.run_tracks import run_timeline  # noqa: E402
from flatout.record import load_run  # noqa: E402
from tests.report.html.browser import browser  # noqa: E402

# In a process of its own, as the command runs: the diagnosis apart from what the page adds to it.
WRITE = """
import sys, time
from pathlib import Path
from flatout.diagnosis import diagnose
from flatout.record import load_run
from flatout.report.html.writing import write_run
begin = time.process_time()
run = load_run(Path(sys.argv[1]))
found = diagnose(run)
middle = time.process_time()
write_run(found, run, Path(sys.argv[2]), force=True)
print(middle - begin, time.process_time() - middle)
"""


def spans(folder: Path) -> int:
    """How many spans a record has."""
    timeline = run_timeline(load_run(folder), {})
    return sum(len(part) for process in timeline.processes for track in process.tracks for part in track.slices)


def written(folder: Path, page: Path) -> tuple[float, float]:
    """CPU seconds of the diagnosis and of the page."""
    done = subprocess.run([sys.executable, "-c", WRITE, folder, page], capture_output=True, text=True, check=True)
    diagnosis, writing = map(float, done.stdout.split())
    return diagnosis, writing


def opened(chromium, path: Path) -> tuple[float, float]:
    """Seconds until everything is drawn, and of zooming once."""
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    begin = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shown = time.perf_counter() - begin
    page.get_by_role("button", name="Zoom in").click()
    zoomed = page.evaluate("""() => {
        const begin = performance.now();
        document.querySelector('.tools button').click();
        return (performance.now() - begin) / 1000;
    }""")
    page.close()
    return shown, zoomed


def middle(values: Sequence[float], digits: int = 2) -> str:
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main() -> int:
    """Measure, print the page, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    before = os.getloadavg()[0]
    took: dict[int, list[tuple[float, ...]]] = {steps: [] for steps in asked.steps}
    with tempfile.TemporaryDirectory(prefix="html-") as folder, browser() as chromium:
        records = {steps: lay_down(Path(folder) / str(steps), steps) for steps in asked.steps}
        pages = {steps: Path(folder) / f"{steps}.html" for steps in asked.steps}
        for _ in range(asked.rounds):
            for steps, record in records.items():
                took[steps].append((*written(record, pages[steps]), *opened(chromium, pages[steps])))
        rows = [
            f"| {steps:,} | {spans(records[steps]):,} | {pages[steps].stat().st_size / 1024:.0f} KiB | "
            + " | ".join(
                middle(column, 3 if place == 3 else 2) for place, column in enumerate(zip(*took[steps], strict=True))
            )
            + " |"
            for steps in asked.steps
        ]
        version = chromium.version
    lines = [
        *head("HTML pages", "benchmarks/html/run.py", ["playwright"], {"Chromium (headless)": version}),
        f"- Seconds, medians and ranges of {asked.rounds} rounds: CPU time of one process for the diagnosis and the "
        f"page, wall time for the browser. The load of the machine was {before:.1f} before the first round.",
        "",
        "| steps | spans of the record | size | diagnosis | writing the page | until it is shown | one zoom |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Shown: from asking for the file to the second frame after all is drawn. A page keeps the 12,000 longest "
        "spans and 1,500 bars, the 300 slowest steps alone among them.",
    ]
    print("\n".join(lines))
    if asked.output:
        asked.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
