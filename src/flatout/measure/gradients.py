"""Gradients that no optimizer uses, as the steps after the window show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.experiments import Experiments, Tried
from flatout.probe import events as kinds
from flatout.probe.contract import USED_GRADIENTS
from flatout.record import ProcessRecord


@dataclass(frozen=True)
class UnusedGradients:
    """Parameters in no optimizer that get a gradient in each step.

    Attributes:
        elements: of these parameters.
        of: elements of all parameters with a gradient.
        modules: those that they belong to, by class and path.
        tried: steps without these gradients; None: there were none.
        not_tried: why.
        clipped: gradients are clipped by a norm, which may contain the unused ones.
        needed: something else may need them, such as hooks.
    """

    elements: int
    of: int
    modules: tuple[str, ...]
    tried: Tried | None
    not_tried: str
    clipped: bool = False
    needed: bool = False

    @property
    def part(self) -> float:
        """Part of all gradients, by their elements."""
        return self.elements / self.of


def read_unused_gradients(process: ProcessRecord, experiments: Experiments) -> UnusedGradients | str | None:
    """The unused gradients of the training; None: there are none; a text: why that is not known."""
    seen = process.info.get("unused_gradients")
    if seen is None:
        return experiments.skipped or (
            "the model is compiled" if process.info.get("compiled") else "no steps after the window were looked at"
        )
    elements, of = seen.get("elements", 0), seen.get("of", 0)
    if not 0 < elements <= of:
        return None
    tried = experiments.tried.get(USED_GRADIENTS)
    because = seen.get("not_tried") or experiments.skipped or "the training ended before"
    needed = bool(seen.get("not_tried"))
    return UnusedGradients(elements, of, tuple(seen.get("modules") or ()), tried, because, _clips(process), needed)


def _clips(process: ProcessRecord) -> bool:
    updates = np.unique(process.of_kinds(kinds.OPTIMIZER)["arg"]).tolist()
    return any("clip_grad_norm" in process.names.text(id) for id in updates)
