"""Recurrent layers that a loop calls for one time step after the other, as a step after the window shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatout.measure.layer_forms import parts
from flatout.record import ProcessRecord


@dataclass(frozen=True)
class StepwiseLayer:
    """One layer whose inputs are made of nothing that it gave before.

    Attributes:
        name: class of the outermost module, and path in it; or the layer's own class.
        kind: its class, such as LSTM or GRUCell.
        calls: in a step, of one time step each.
        call_s: seconds of both passes of one call, one of several in turn; None: not timed.
        part: time of one call with all time steps over that of one after the other, the fastest rounds of both.
        low: the least of the rounds.
        high: the most of them.
        skipped: why it was not timed.
    """

    name: str
    kind: str
    calls: int
    call_s: float | None = None
    part: float = 1.0
    low: float = 1.0
    high: float = 1.0
    skipped: str = ""

    def saved_s(self, part: float) -> float:
        """Seconds of a step, where one call takes this part of the time of all."""
        return 0.0 if self.call_s is None else self.calls * self.call_s * (1.0 - part)


def read_stepwise_layers(process: ProcessRecord) -> tuple[StepwiseLayer, ...]:
    """Those of the training process, the ones that save most first; empty: there are none, or nobody looked."""
    found = [_layer(seen) for seen in process.info.get("stepwise_layers") or ()]
    return tuple(sorted(found, key=lambda layer: -layer.saved_s(layer.part)))


def _layer(seen: Mapping[str, Any]) -> StepwiseLayer:
    layer = StepwiseLayer(seen.get("name") or seen["kind"], seen["kind"], seen["calls"])
    apart, joined, timed = seen.get("apart_ns") or [], seen.get("joined_ns") or [], seen.get("timed")
    if not timed or not apart or not joined:
        return StepwiseLayer(layer.name, layer.kind, layer.calls, skipped=seen.get("skipped") or "it was not timed")
    return StepwiseLayer(layer.name, layer.kind, layer.calls, min(apart) / timed / 1e9, *parts(apart, joined))
