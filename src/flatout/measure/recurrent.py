"""Operators inside a recurrent layer of torch's own, which a user's code neither calls nor can join."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from flatout.measure.timeline import Flags, Ints
from flatout.record.kernel_trace import Spans

_LAYERS = ("gru", "lstm", "rnn_tanh", "rnn_relu", "quantized_gru", "quantized_lstm")
_LAYER = re.compile(rf"^aten::({'|'.join(_LAYERS)})$")
_LSTM = re.compile(r"^aten::lstm$")
# The engine runs what the forward pass has noted, in the same proportions.
_BACKWARD = re.compile(r"^autograd::engine::")


def called_by_user(callers: Sequence[str]) -> Flags:
    """False for operators of a recurrent layer, in its forward and its backward pass.

    Args:
        callers: the outermost operator around each one, without "aten::"; in the backward pass that of its forward one.
    """
    return np.array([caller not in _LAYERS for caller in callers], bool)


def recurrent_share(operators: Spans, parent: Ints, leaf: Flags) -> float:
    """Share of the forward pass's operators that a recurrent layer calls, for each step of its sequence.

    Args:
        operators: in order of start.
        parent: row of the operator that calls each; -1: none.
        leaf: operators that call no other, and count.
    """
    return _share(operators, parent, leaf, _LAYER)


def unfused_share(operators: Spans, parent: Ints, leaf: Flags) -> float:
    """The same, of LSTM layers in 64-bit floats on a CPU: in 32 bits oneDNN computes such a layer in one operator."""
    return _share(operators, parent, leaf, _LSTM) if (leaf & operators.wide).any() else 0.0


def _share(operators: Spans, parent: Ints, leaf: Flags, layer: re.Pattern[str]) -> float:
    recurrent, backward = np.zeros(len(operators), bool), np.zeros(len(operators), bool)
    for row, (name, above) in enumerate(zip(operators.name, parent.tolist(), strict=True)):
        recurrent[row] = bool(layer.search(name)) or (above >= 0 and recurrent[above])
        backward[row] = bool(_BACKWARD.search(name)) or (above >= 0 and backward[above])
    forward = leaf & ~backward
    count = int(np.count_nonzero(forward))
    return int(np.count_nonzero(forward & recurrent)) / count if count else 0.0
