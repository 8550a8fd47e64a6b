"""What the outermost calls of modules are for: training, evaluation, or a loss."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import Flags
from flatout.probe import events as kinds
from flatout.record import Events
from flatout.record.names import Names

FEW_STEPS = 0.25  # of all
_MANY_CALLS = 4  # of one module between two backward passes


def evaluation_calls(events: Events) -> Flags:
    """Calls in evaluation mode: without gradients, of a module that earlier calls trained, or in a row.

    Others with gradients may be of a model whose layers are frozen in that mode while it is trained.
    """
    without_gradients = (events["a"] == 0) & (events["b"] != kinds.TRAINS)
    forward = events["kind"] == kinds.FORWARD
    return np.asarray(forward & (without_gradients | (events["b"] == kinds.HAS_TRAINED) | _in_a_row(events)))


def _in_a_row(events: Events) -> Flags:
    """Calls in evaluation mode with gradients, of modules that few steps call, and then many times.

    That a backward pass goes through so many of them is unlikely. A model that is trained by calls of its parts, as by
    a method for its loss, is evaluated so.
    """
    back = np.sort(events["start"][events["kind"] == kinds.BACKWARD])
    found = np.zeros(len(events), bool)
    with_gradients = (events["a"] == 1) & (events["b"] == kinds.EVALUATES)
    calls = np.flatnonzero((events["kind"] == kinds.FORWARD) & with_gradients)
    step = np.searchsorted(back, events["start"][calls])
    for name in np.unique(events["arg"][calls]):
        mine = events["arg"][calls] == name
        steps, count = np.unique(step[mine], return_counts=True)
        if len(steps) <= FEW_STEPS * len(back) and np.median(count) >= _MANY_CALLS:
            found[calls[mine]] = True
    return found


def training_calls(events: Events, names: Names) -> Flags:
    """Calls in training mode with gradients, but for losses, whose mode nobody changes."""
    trains = (events["kind"] == kinds.FORWARD) & (events["a"] == 1) & (events["b"] == kinds.TRAINS)
    return np.asarray(trains & ~loss_calls(events, names))


def loss_calls(events: Events, names: Names) -> Flags:
    """Calls with gradients of modules whose class is named a loss, where others are called beside them."""
    forward = (events["kind"] == kinds.FORWARD) & (events["a"] == 1)
    modules = np.unique(events["arg"][forward]).tolist()
    losses = [id for id in modules if names.text(id).endswith("Loss")]
    found: Flags = forward & np.isin(events["arg"], losses)
    # Some losses hold the network, as those of sentence-transformers do.
    beside = 2 * np.count_nonzero(forward & ~found) >= np.count_nonzero(events["kind"] == kinds.BACKWARD)
    return found & beside
