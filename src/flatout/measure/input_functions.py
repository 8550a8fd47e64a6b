"""The user's functions that make samples and batches, one inside the other, by their share of that time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.measure.accounts import Charged
from flatout.measure.called_functions import of_step_functions
from flatout.measure.maker_threads import holder_samples, maker_samples
from flatout.measure.own_input import awaits_maker
from flatout.measure.samples import RUNNING, Samples, frames_of, is_named, stack_weights
from flatout.measure.timeline import Floats
from flatout.measure.training import Training

Frames = Sequence[Sequence[Any]]
_FETCH = re.compile(r"/torch/utils/data/_utils/fetch\.py$")


@dataclass(frozen=True)
class InputFunction:
    """A function of the user's on the stacks of what makes input, with what it calls.

    Attributes:
        file: of its code.
        name: qualified; before Python 3.11 its last part.
        cpu_share: of that time on a core in which it is on the stack.
        blocked_share: of the blocked time.
        below: the same two shares of what other functions do that it calls.
        depth: the mean number of frames between it and what makes a batch.
    """

    file: str
    name: str
    cpu_share: float
    blocked_share: float
    below: tuple[float, float]
    depth: float


class InputFunctions:
    """Gathers the user's functions on stacks."""

    def __init__(self) -> None:
        # Weight on a core and blocked, the same where it calls another function, and the weight times its depth.
        self._found: dict[tuple[str, str], Floats] = {}
        self._whole = np.zeros(2)

    def add(self, samples: Samples, made_by: Callable[[Frames], int]) -> None:
        """Add the stack samples of a thread.

        Args:
            samples: one of unknown state counts as on a core.
            made_by: finds the place of the frame that asks for a batch, in frames with the innermost first.
        """
        blocked = (samples.state > 0) & (samples.state != RUNNING)
        on_core, waiting = (stack_weights(samples.take(mask)) for mask in (~blocked, blocked))
        for id in on_core.keys() | waiting.keys():
            weights = np.array([on_core.get(id, 0.0), waiting.get(id, 0.0)])
            self._whole += weights
            frames = frames_of(samples.names, id)
            depths = _inside(frames, made_by(frames))
            for depth, function in depths.items():
                below = weights if depth < max(depths) else np.zeros(2)
                sums = self._found.setdefault(function, np.zeros(5))
                sums += [*weights, *below, depth * weights.sum()]

    def found(self) -> tuple[InputFunction, ...]:
        """The outermost first, with shares of the time of all samples."""
        found = []
        for (file, name), sums in self._found.items():
            cpu, waited, below_cpu, below_waited = (sums[:4] / np.maximum(np.tile(self._whole, 2), 1e-9)).tolist()
            depth = float(sums[4] / max(sums[:2].sum(), 1e-9))
            found.append(InputFunction(file, name, cpu, waited, (below_cpu, below_waited), depth))
        return tuple(sorted(found, key=lambda one: one.depth))


def in_fetch(frames: Frames) -> int:
    """Place of the fetch of torch's DataLoader; in the training process its own functions are further out."""
    return next((place for place, frame in enumerate(frames) if _FETCH.search(str(frame[0]))), len(frames))


def in_thread(frames: Frames) -> int:
    """Place of the user's outermost function, which a thread was started with and that runs once."""
    return max((place for place, frame in enumerate(frames) if frame[4]), default=0)


def own_input_functions(training: Training, charged: Charged) -> tuple[InputFunction, ...]:
    """The functions that make input without a DataLoader, in the training thread or in others."""
    begin_ns, end_ns = training.window_begin_ns, training.window_end_ns
    of_step = of_step_functions(charged, begin_ns, end_ns)

    def in_loop(frames: Frames) -> int:
        places = (place for place, frame in enumerate(frames) if (str(frame[0]), str(frame[2])) in of_step)
        return next(places, len(frames))

    found = InputFunctions()
    samples = charged.samples.take(np.isin(charged.sample_piece, charged.rows("batch_wait", begin_ns, end_ns)))
    waits = {int(id): awaits_maker(frames_of(samples.names, int(id))) for id in np.unique(samples.stack)}
    found.add(samples.take(np.array([not waits[id] for id in samples.stack.tolist()], bool)), in_loop)
    makers = maker_samples(training, begin_ns, end_ns) or [holder_samples(training, begin_ns, end_ns)]
    for others in makers:
        found.add(others, in_thread)
    return found.found()


def _inside(frames: Frames, end: int) -> dict[int, tuple[str, str]]:
    """The user's functions further in than a frame, by their distance from it."""
    found: dict[tuple[str, str], int] = {}
    for place in range(end):
        frame = frames[place]
        if frame[4] and is_named(str(frame[2])):
            found[str(frame[0]), str(frame[2])] = end - place
    return {depth: function for function, depth in found.items()}
