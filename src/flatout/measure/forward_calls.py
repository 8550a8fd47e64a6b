"""What the outermost calls of modules are for: training, evaluation, or a loss."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import Flags
from flatout.probe import events as kinds
from flatout.record import Events
from flatout.record.names import Names


def evaluation_calls(events: Events) -> Flags:
    """Calls in evaluation mode without gradients, or of a module that earlier calls trained.

    Others with gradients may be of a model whose layers are frozen in that mode while it is trained.
    """
    without_gradients = (events["a"] == 0) & (events["b"] != kinds.TRAINS)
    return np.asarray((events["kind"] == kinds.FORWARD) & (without_gradients | (events["b"] == kinds.HAS_TRAINED)))


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
