"""Code of the model's that runs outside of module calls, such as a loss that is a method of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flatout.measure.divided import Divided, divide
from flatout.measure.samples import Samples, frames_of
from flatout.measure.timeline import Flags, Ints, Pieces


def divide_model_code(
    pieces: Pieces,
    candidates: Flags,
    computing: Flags,
    kind: Ints,
    samples: Samples,
    piece: Ints,
    info: Mapping[str, Any],
) -> Divided:
    """Divide candidate pieces by the stack samples into code of the model's and the rest.

    Args:
        pieces: of the training thread.
        candidates: those that may hold such code.
        computing: those in which backward pass or optimizer run: they show the functions of the training loop.
        kind: of each piece: those of one kind have one account, and lie between the same kinds of spans.
        samples: stack samples of the thread.
        piece: of each sample; -1 outside.
        info: of the training process; its ``model_functions`` computed with gradients in a step after the window.
    """
    functions = {(str(file), str(function)) for file, function in info.get("model_functions") or ()}
    busy = (piece >= 0) & computing[piece] if len(computing) else np.zeros(len(piece), bool)
    for id in np.unique(samples.stack[busy]).tolist() if functions else ():
        functions -= {(str(frame[0]), str(frame[2])) for frame in frames_of(samples.names, id)}
    of_model = [id for id in np.unique(samples.stack).tolist() if functions and _innermost(samples, id) in functions]
    return divide(pieces, candidates, kind, samples, piece, np.isin(samples.stack, of_model))


def _innermost(samples: Samples, stack: int) -> tuple[str, str] | None:
    """File and name of the user's innermost function."""
    frames = frames_of(samples.names, stack)
    return next(((str(frame[0]), str(frame[2])) for frame in frames if frame[4]), None)
