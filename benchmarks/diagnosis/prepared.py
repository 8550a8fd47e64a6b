"""A script made ready to run: its variant written, its data served, the cores crowded, its own folder made."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import material
from scenarios import FIXED, Scenario


@contextlib.contextmanager
def prepared(scenario: Scenario, seed: int, variant: str, sets: dict[str, str]) -> Iterator[tuple[list[str], Path]]:
    """Prepare one run.

    Args:
        scenario: the script.
        seed: that draws its numbers.
        variant: the original, or one with changes.
        sets: name -> folder of data, as ``material.make`` gives them.

    Yields:
        The script with its arguments, and an empty folder to run it in.
    """
    with tempfile.TemporaryDirectory(prefix="diagnosis") as name:
        work = Path(name) / "work"
        work.mkdir()
        script = scenario.write(Path(name) / "code", seed, variant)
        arguments = scenario.fix_args if variant == FIXED and scenario.fix_args is not None else scenario.args
        places = {**sets, "work": str(work)}
        if scenario.serve is None:
            with material.crowd(scenario.crowd):
                yield _command(script, arguments, places), work
            return
        numbers = scenario.numbers(seed)
        folder = scenario.serve["folder"].format(**sets)
        with material.serving(folder, numbers["delay_ms"], numbers.get("mbps", 0)) as url:
            yield _command(script, arguments, {**places, "url": url}), work


def _command(script: Path, arguments: Iterable[str], places: dict[str, str]) -> list[str]:
    return [str(script), *(argument.format(**places) for argument in arguments)]
