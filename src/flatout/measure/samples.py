"""Stack samples of one thread: how much time each stands for, and the lines of code they name."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flatout.measure.timeline import Floats, Ints
from flatout.probe import events as kinds
from flatout.record import Events, Names, of_kinds
from flatout.results import Line

TOP_LINES = 5
RUNNING = ord("R")  # the kernel's state letter of a thread on a core, or ready for one
# Functions by which a part of a pipeline is called, and frameworks that own the training loop.
_PART = re.compile(r"(^|\.)(__getitem__|__call__|forward|transform)$")
_FRAMEWORK = re.compile(r"/(pytorch_lightning|lightning|transformers|accelerate|fastai|ignite|composer)/")
# The script that pip puts into bin/ for a package's command only calls that package.
_STARTER = re.compile(r"/bin/[^/.]+$")
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+)")
# A sample stands for the time since the one before it, but not for a pause of the sampler.
LONGEST_PAUSE = 2.0  # times the median


@dataclass(frozen=True)
class Samples:
    """Stack samples in time order, one entry a sample."""

    time_ns: Ints
    weight: Floats
    stack: Ints  # name id
    state: Ints  # the kernel's state letter as a number; 0: unknown
    names: Names

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, rows: ArrayLike) -> Samples:
        """The samples that an index or a mask selects."""
        chosen = np.asarray(rows)
        return Samples(self.time_ns[chosen], self.weight[chosen], self.stack[chosen], self.state[chosen], self.names)


def stack_samples(events: Events, names: Names) -> Samples:
    """The stack samples among the events of one thread."""
    stacks = of_kinds(events, kinds.STACK)
    stacks = stacks[np.argsort(stacks["start"], kind="stable")]
    gaps = np.maximum(stacks["a"], 0).astype(float)
    typical = float(np.median(gaps[gaps > 0])) if np.any(gaps > 0) else 1.0
    weight = np.clip(np.where(gaps > 0, gaps, typical), 0.0, LONGEST_PAUSE * typical)
    return Samples(
        stacks["start"].astype(np.int64),
        weight,
        stacks["arg"].astype(np.int64),
        stacks["b"].astype(np.int64),
        names,
    )


def frames_of(names: Names, stack: int) -> list[list[Any]]:
    """Frames of a stack, innermost first; empty when its name was lost."""
    frames = names.get(stack, "stack").get("frames")
    return [frame for frame in frames if len(frame) == 5] if isinstance(frames, list) else []


def source_of(names: Names, stack: int) -> str:
    """Text of the line that ``line_of`` names; empty when there is none."""
    line = line_of(names, stack)
    return line.source if line else ""


def line_of(names: Names, stack: int) -> Line | None:
    """The line to name for a stack: the one that the user can act on.

    That is the innermost line of the user's own. A line that only starts a framework's loop (``trainer.fit``) says
    nothing: then it is the framework's innermost. Where no code of the user is on the stack, it is the part of the
    pipeline that works, such as one transform.
    """
    frames = frames_of(names, stack)
    if not frames:
        return None
    own = next((place for place, frame in enumerate(frames) if frame[4] and not _STARTER.search(str(frame[0]))), None)
    part = next((frame for frame in frames if _PART.search(str(frame[2]))), None)
    if own is None:
        own = _of_program(frames)
    else:
        part = None
    if part is not None:
        chosen = part
    elif own > 0 and _FRAMEWORK.search(str(frames[own - 1][0])) and not _called_by_framework(frames[own + 1 :]):
        chosen = next(frame for frame in frames if _FRAMEWORK.search(str(frame[0])))
    else:
        chosen = frames[own]
    file, line, function, source, _ = chosen
    return Line(str(file), int(line), str(function), str(source), 0.0)


def _called_by_framework(outer: list[list[Any]]) -> bool:
    """True for a function of the user's that the framework's loop calls: its line says what is done."""
    return any(_FRAMEWORK.search(str(frame[0])) for frame in outer)


def _of_program(frames: list[list[Any]]) -> int:
    """Of a program that is an installed package itself: place of its innermost line, not that of a library it calls."""
    packages = [_PACKAGE.search(str(frame[0])) for frame in frames]
    program = next((found[1] for found in reversed(packages) if found), None)
    return next((place for place, found in enumerate(packages) if found and found[1] == program), 0)


def stack_weights(samples: Samples, weight: Floats | None = None) -> dict[int, float]:
    """Weight of each stack, by its name id."""
    ids, place = np.unique(samples.stack, return_inverse=True)
    sums = np.bincount(place, samples.weight if weight is None else weight, minlength=len(ids))
    return dict(zip(ids.tolist(), sums.tolist(), strict=True))


def is_named(function: str) -> bool:
    """False for a module, a lambda or a comprehension."""
    return function.rpartition(".")[2].isidentifier()


def weigh_lines(samples: Samples, weight: Floats | None = None) -> dict[Line, float]:
    """Weight of each line, heaviest first. Lines carry 0 seconds here."""
    found: dict[Hashable, tuple[Line, float]] = {}
    for id, amount in stack_weights(samples, weight).items():
        line = line_of(samples.names, id)
        if line is not None:
            known, before = found.get((line.file, line.line), (line, 0.0))
            found[line.file, line.line] = (known, before + amount)
    return dict(sorted(found.values(), key=lambda item: -item[1]))


def top_lines(weights: dict[Line, float], seconds: float, count: int = TOP_LINES) -> tuple[Line, ...]:
    """Share out ``seconds`` over lines by their weights, and keep the hottest; each line of a file stands once."""
    total = sum(weights.values())
    if total <= 0 or seconds <= 0:
        return ()
    # A comprehension or a lambda is a separate function on the same line as another one.
    places: dict[tuple[str, int], tuple[Line, float]] = {}
    for line, weight in sorted(weights.items(), key=lambda item: -item[1]):
        known, before = places.get((line.file, line.line), (line, 0.0))
        places[line.file, line.line] = (known, before + weight)
    hottest = sorted(places.values(), key=lambda item: -item[1])[:count]
    return tuple(
        Line(line.file, line.line, line.function, line.source, seconds * weight / total) for line, weight in hottest
    )
