"""Asking flatout and train-doctor to fix a script, and reading what each says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLATOUT, RIVAL, RIVAL_VERSION = "flatout", "train-doctor", "0.2.0"
_WITHIN_S = 1800.0


@dataclass(frozen=True)
class Fixed:
    """What a tool made of one script.

    Attributes:
        tool: FLATOUT or RIVAL.
        speedup: as the tool says, of its own pairs; None: it kept nothing.
        kept: titles.
        wall_s: that it took.
        note: what went wrong.
    """

    tool: str
    speedup: float | None
    kept: tuple[str, ...]
    wall_s: float
    note: str = ""


def fix(
    tool: str, python: str, script: Sequence[str], folder: Path, *, budget: str, allow: Sequence[str] = (), threads: int
) -> Fixed:
    """Let a tool fix one script.

    Args:
        tool: FLATOUT or RIVAL, which has its own defaults.
        python: of the training; RIVAL is installed beside it.
        script: with its arguments.
        folder: to run in.
        budget: of FLATOUT.
        allow: classes of remedies, besides identical ones.
        threads: OMP_NUM_THREADS; 0: not set.
    """
    if tool == FLATOUT:
        words = [sys.executable, "-m", "flatout", "fix", "--budget", budget, "--json", "--quiet"]
        words += [f"--allow={one}" for one in allow]
    else:
        words = [str(Path(python).parent / RIVAL), "fix", "--json", "--quiet", "--no-card"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    begin_s = time.monotonic()
    done = subprocess.run(
        [*words, "--", python, *script],
        cwd=folder, capture_output=True, text=True, check=False, timeout=_WITHIN_S,
        env=environment | ({"OMP_NUM_THREADS": str(threads)} if threads else {}),
    )  # fmt: skip
    wall_s = time.monotonic() - begin_s
    try:
        found = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Fixed(tool, None, (), wall_s, lines[-1][:120] if lines else f"exit code {done.returncode}")
    speedup, kept = (_own if tool == FLATOUT else _rival)(found)
    return Fixed(tool, speedup, kept, wall_s)


def _own(found: dict[str, Any]) -> tuple[float | None, tuple[str, ...]]:
    proof, kept = found["proof"], tuple(trial["title"] for trial in found["kept"])
    return (proof["speedup"], kept) if proof and kept else (None, ())


def _rival(found: dict[str, Any]) -> tuple[float | None, tuple[str, ...]]:
    proven = found.get("proven")
    return (float(proven["ratio"]["point"]), (str(proven["describe"]),)) if proven else (None, ())
