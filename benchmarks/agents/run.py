"""Does a client that only follows ``next_step`` bring a training into its deadline?

Each task is drawn: small photographs, a limit, two folds and 30 epochs wanted; valid is a submission with a row for
each test image, written before the limit. The client trains by flatout's MCP server with ``max_time``, and does
nothing else than what each answer names as the next step. The other way is the same training without a plan, ended at
the limit: what the report from the field did.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.progress import track

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))
sys.path.insert(0, str(HERE.parent.parent))

from conditions import head  # noqa: E402

from tests.loader.photographs import make_class_folders  # noqa: E402

EPOCHS, FOLDS = 30, 2
NEVER_S = 1000.0


@dataclass(frozen=True)
class Task:
    """A data set and a limit.

    Attributes:
        classes: of the images.
        images: of each class.
        limit_s: from the client's first call to the file.
    """

    classes: int
    images: int
    limit_s: float

    @classmethod
    def drawn(cls, seed: int) -> Task:
        """The task of this number."""
        draw = random.Random(seed)
        return cls(draw.randint(2, 6), draw.choice((40, 80, 160, 320, 640)), draw.choice((50.0, 60.0, 75.0, 90.0)))


@dataclass(frozen=True)
class Ended:
    """What came of a task.

    Attributes:
        spent_s: until the client had nothing more to do.
        written_s: when the submission was last written; None: there is none.
        rows: of the submission; 0: there is none.
        accuracy: of its rows; None: there is none.
        calls: of tools.
    """

    spent_s: float
    written_s: float | None
    rows: int
    accuracy: float | None
    calls: int


async def follow(client: Client, tool: str, arguments: dict[str, Any], until_s: float) -> int:
    """Call a tool, and then whatever is named as the next step; returns the number of calls."""
    calls = 0
    while time.monotonic() < until_s:
        answer = await client.call_tool(tool, arguments)
        calls += 1
        if answer.is_error or not (step := (answer.structured_content or {}).get("next_step")) or step["needs"]:
            break
        tool, arguments = step["tool"], step["arguments"]
    return calls


async def attempt(task: Task, seed: int, planned: bool) -> Ended:
    """Do a task in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make_class_folders(root / "images", task.classes, task.images, 64, seed)
        arguments: dict[str, Any] = {
            "recipe": "demo",
            "data": str(root / "images"),
            "epochs": EPOCHS,
            "output": "run",
            "settings": {
                "model.name": "test_resnet", "images.size": "64", "images.workers": "1", "training.batch_size": "16",
                "data.validation": "null", "data.test": "val", "folds": f"{{count: {FOLDS}}}",
            },
        }  # fmt: skip
        arguments |= {"max_time": f"{task.limit_s:g}s"} if planned else {"deadline_s": task.limit_s}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "flatout", "mcp", "--root", name], env=environment
        )
        async with Client(server) as client:
            began = time.monotonic()
            began_at = time.time()
            calls = await follow(client, "train", arguments, began + NEVER_S)
            spent_s = time.monotonic() - began
        submission = root / "run" / "submission.csv"
        written_s = submission.stat().st_mtime - began_at if submission.is_file() else None
        rows, accuracy = score(submission, root / "images" / "val")
        return Ended(spent_s, written_s, rows, accuracy, calls)


def score(submission: Path, test: Path) -> tuple[int, float | None]:
    """Rows of a submission and their accuracy; 0 if a test image has no row, or a row is no distribution."""
    if not submission.is_file():
        return 0, None
    with submission.open(newline="") as file:
        rows = list(csv.DictReader(file))
    right = 0
    for row in rows:
        shares = {name: float(value) for name, value in row.items() if name != "id"}
        if abs(sum(shares.values()) - 1) > 1e-3:
            return 0, None
        right += row["id"].startswith(f"{max(shares, key=shares.__getitem__)}/")
    return (len(rows), right / len(rows)) if len(rows) == len(list(test.rglob("*.jpg"))) else (0, None)


def valid(task: Task, ended: Ended) -> bool:
    """A complete submission that was there in time."""
    return ended.rows > 0 and ended.written_s is not None and ended.written_s <= task.limit_s


def page(tasks: list[Task], ended: dict[bool, list[Ended]]) -> str:
    """The page of the results."""
    counts = {way: sum(map(valid, tasks, done)) for way, done in ended.items()}
    lines = head("Into a deadline by the tools alone", "benchmarks/agents/run.py", ["flatout", "mcp", "torch"], {})
    lines += [
        f"- Each task: photographs of 64 pixels drawn from scikit-image's, {FOLDS} folds x {EPOCHS} epochs of timm's "
        "test_resnet wanted, a limit from the first call to the file.",
        "- Planned: the client calls train with max_time over standard streams, and then only what next_step names.",
        "- Not planned: the same call without max_time; it is ended at the limit.",
        "- Valid: a row for each test image, whose shares add up to 1, last written in time. Calls: of tools.",
        "",
        f"**Valid in time: {counts[True]} of {len(ended[True])} planned, {counts[False]} of {len(ended[False])} not "
        "planned.**",
        "",
        "| classes x images | limit | planned: submission at | ended | accuracy | calls | not planned: submission at | "
        "ended | accuracy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task, planned, other in itertools.zip_longest(tasks, ended[True], ended[False]):
        cells = [f"{task.classes} x {task.images}", f"{task.limit_s:.0f} s", *shown(planned), str(planned.calls)]
        lines.append(f"| {' | '.join(cells + (shown(other) if other else ['not run', '', '']))} |")
    return "\n".join(lines) + "\n"


def shown(ended: Ended) -> list[str]:
    """Times and accuracy, as cells."""
    written = "none" if ended.written_s is None else f"{ended.written_s:.1f} s"
    return [written, f"{ended.spent_s:.1f} s", "none" if ended.accuracy is None else f"{ended.accuracy:.0%}"]


def main() -> None:
    """Run all tasks in both ways, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--unplanned", type=int, help="how many of them also without a plan; default: all")
    parser.add_argument("--first", type=int, default=0, help="number of the first task")
    parser.add_argument("--output", type=Path, help="the page; else standard output")
    options = parser.parse_args()
    tasks = [Task.drawn(options.first + number) for number in range(options.tasks)]
    ended: dict[bool, list[Ended]] = {True: [], False: []}
    unplanned = len(tasks) if options.unplanned is None else options.unplanned
    for number, task in enumerate(track(tasks, "tasks", console=Console(stderr=True))):
        for planned in (True, False)[: 2 if number < unplanned else 1]:
            ended[planned].append(anyio.run(attempt, task, options.first + number, planned))
            print(task, "planned" if planned else "not planned", ended[planned][-1], file=sys.stderr, flush=True)
    text = page(tasks, ended)
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
