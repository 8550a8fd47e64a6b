"""What flatout is for, on one screen: a training with an ordinary mistake, found, corrected and measured.

Profiles examples/train.py, shows the report, profiles the corrected script and compares the two.

    python examples/demo.py            # under four minutes on two cores
    python examples/demo.py --short    # fewer steps, without the guess
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from comparison import Reading, compare

EXAMPLES = Path(__file__).resolve().parent
CORRECTED_CAUSE = "cpu_transform"
CORES = 2  # of any machine: with more of them, the same script would have another bottleneck
ENDING_S = 30.0  # what flatout gets to end the training and write its record after Ctrl-C


class DemoError(Exception):
    """Why the demo stopped, in one line."""


def say(text: str = "") -> None:
    print(text, flush=True)


def heading(text: str) -> None:
    say(f"\n{text}\n{'=' * len(text)}")


def run(command: list[str], *, show: bool) -> str:
    """Run a command to its end and return its standard output (nothing when it is shown instead).

    Raises:
        DemoError: It failed.
    """
    pipe = None if show else subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            output, errors = process.communicate()
        except KeyboardInterrupt:
            # The child has received Ctrl-C as well: let it end the training's processes.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
            process.terminate()
            raise
    if process.returncode in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt
    if process.returncode != 0:
        last = (errors or "").strip().splitlines()[-1:]
        raise DemoError(
            f"{shlex.join(command)} failed with code {process.returncode}" + "".join(f": {x}" for x in last)
        )
    return output or ""


def recorded(runs_dir: Path) -> set[Path]:
    return {record.parent for record in runs_dir.glob("*/run.json")}


def profile(script: str, options: argparse.Namespace, out: Path, extra: tuple[str, ...] = (), *, show: bool) -> Reading:
    """Profile one of the example scripts and read its report."""
    path = os.path.relpath(EXAMPLES / script)
    training = ["python", path, "--data", str(options.data), "--out", str(out), *extra]
    bounds = ["--steps", str(options.steps)]
    command = f"$ flatout profile {shlex.join(bounds)} -- {shlex.join(training)}"
    say(
        " \\\n".join(
            textwrap.wrap(command, 78, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        )
        + "\n"
    )
    flatout = [sys.executable, "-m", "flatout"]
    runs_dir = ["--runs-dir", str(options.runs_dir)]
    known = recorded(options.runs_dir)
    run([*flatout, "profile", *bounds, *runs_dir, "--", sys.executable, *training[1:]], show=show)
    new = recorded(options.runs_dir) - known
    if not new:
        raise DemoError(f"flatout profile left no run in {options.runs_dir}")
    latest = max(new, key=lambda folder: (folder / "run.json").stat().st_mtime_ns)
    report = run([*flatout, "report", str(latest), "--json", *runs_dir], show=False)
    try:
        return Reading.of(json.loads(report))
    except ValueError as error:
        raise DemoError(f"{latest}: {error}") from error


def correction() -> list[str]:
    """The difference between the two scripts' code, as lines of a diff without its file names."""
    # The descriptions at the top differ as well, and say nothing about the training.
    code = [(EXAMPLES / name).read_text().partition("\nimport")[2] for name in ("train.py", "train_fixed.py")]
    diff = difflib.unified_diff(code[0].splitlines(), code[1].splitlines(), n=2, lineterm="")
    return [line for line in diff if not line.startswith(("---", "+++", "@@"))]


def use_two_cores() -> None:
    """Keep the demo to two cores, so that it shows the same on any machine."""
    if not hasattr(os, "sched_getaffinity"):
        return
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) > CORES:
        os.sched_setaffinity(0, usable[:CORES])
        say(f"(The demo uses {CORES} of the {len(usable)} cores here, to show the same on any machine.)")


def demonstrate(options: argparse.Namespace, out: Path) -> None:
    say("flatout finds out what holds a training back, on the training's own command.")
    say("Here it is on a small training whose author has made an ordinary mistake.")
    use_two_cores()

    heading("1. The data: real photographs, of ImageNet's size")
    run([sys.executable, str(EXAMPLES / "photographs.py"), "--data", str(options.data)], show=True)

    heading("2. The training as it was written, and what flatout says about it")
    before = profile("train.py", options, out, show=True)

    guess = None
    if not options.short:
        heading("3. What one might have guessed instead: twice as many workers")
        guess = profile("train.py", options, out, ("--workers", "4"), show=False)
        say(f"{guess.rate_sps:.0f} samples/s; it was {before.rate_sps:.0f}.")

    heading(f"{3 if options.short else 4}. The correction: crop first, then change the colours of what is left")
    for line in correction():
        say(line)
    say("\nThe same augmentations, on 4,096 pixels instead of 187,500. Contrast now changes")
    say("relative to the crop, not to the photograph: a small change in the data.\n")
    after = profile("train_fixed.py", options, out, show=False)

    heading(f"{4 if options.short else 5}. Before and after")
    for line in compare(before, after, CORRECTED_CAUSE, guess):
        say(line)
    say(f"\nEach script ran once, for {options.steps} steps: small differences mean nothing.")

    heading("What to do next")
    if after.causes:
        name, title = after.causes[0]
        say(textwrap.fill(f"The corrected script's report names {name} first: {title}.", 80))
    say("See that report:             flatout report" + runs_dir_option(options.runs_dir))
    say("Profile your own training:   flatout profile -- python your_training.py")


def runs_dir_option(runs_dir: Path) -> str:
    return "" if runs_dir == Path(".flatout/runs") else f" --runs-dir {shlex.quote(str(runs_dir))}"


def parse_options() -> argparse.Namespace:
    cache = os.environ.get("XDG_CACHE_HOME")
    data = (Path(cache) if cache else Path.home() / ".cache") / "flatout" / "photographs"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer steps, and no step 3")
    parser.add_argument("--data", type=Path, default=data, help="folder of the photographs (%(default)s)")
    parser.add_argument("--runs-dir", type=Path, default=Path(".flatout/runs"), help="where runs go (%(default)s)")
    options = parser.parse_args()
    options.steps = 60 if options.short else 120
    return options


def main() -> int:
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="flatout-demo-") as out:
            demonstrate(options, Path(out))
    except (DemoError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
