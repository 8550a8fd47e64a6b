"""Gradients that no optimizer uses, or that are discarded, as the steps after the window show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.experiments import Experiments, Tried
from flatout.probe import events as kinds
from flatout.probe.contract import KEPT_GRADIENTS, USED_GRADIENTS
from flatout.record import ProcessRecord

_LEAST_PASSES = 6  # from each line, that show whether their gradients are discarded


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


@dataclass(frozen=True)
class DiscardingLine:
    """A line whose backward passes compute gradients that are set to zero before they are used.

    Attributes:
        file, line, function: where the passes are called.
        passes: that were looked at.
        elements: of the discarded gradients of a pass.
        of: elements of all its gradients.
        modules: those with the discarded ones, by class and path.
    """

    file: str
    line: int
    function: str
    passes: int
    elements: int
    of: int
    modules: tuple[str, ...]


@dataclass(frozen=True)
class DiscardedGradients:
    """Gradients that are set to zero before an optimizer or other code uses them.

    Attributes:
        part: of all gradients that backward passes compute, by their elements.
        lines: that compute them, most elements first.
        tried: steps without them; None: there were none.
        not_tried: why.
        needed: something else may need them, such as hooks.
    """

    part: float
    lines: tuple[DiscardingLine, ...]
    tried: Tried | None
    not_tried: str
    needed: bool = False


def read_unused_gradients(process: ProcessRecord, experiments: Experiments) -> UnusedGradients | str | None:
    """The unused gradients of the training; None: there are none; a text: why that is not known."""
    seen = process.info.get("unused_gradients")
    if seen is None:
        return _not_seen(process, experiments)
    elements, of = seen.get("elements", 0), seen.get("of", 0)
    if not 0 < elements <= of:
        return None
    tried = experiments.tried.get(USED_GRADIENTS)
    because = seen.get("not_tried") or experiments.skipped or "the training ended before"
    needed = bool(seen.get("not_tried"))
    return UnusedGradients(elements, of, tuple(seen.get("modules") or ()), tried, because, _clips(process), needed)


def read_discarded_gradients(process: ProcessRecord, experiments: Experiments) -> DiscardedGradients | str | None:
    """The discarded gradients of the training; None: there are none; a text: why that is not known."""
    seen = process.info.get("discarded_gradients")
    if seen is None:
        return _not_seen(process, experiments)
    if seen.get("failed"):
        return str(seen["failed"])
    elements, of = seen.get("elements", 0), seen.get("of", 0)
    lines = tuple(
        DiscardingLine(file, line, function, passes, discarded, all_of_them, tuple(modules))
        for file, line, function, passes, discarded, all_of_them, modules in seen.get("lines") or ()
    )
    if not 0 < elements <= of or not lines:
        passes, callers = seen.get("passes") or (0, 0)
        # A network that another one's pass goes through may be updated in every fifth step.
        few = callers > 1 and passes < _LEAST_PASSES * callers
        return f"only {passes} backward passes from {callers} lines were looked at after the window" if few else None
    because = seen.get("not_tried") or experiments.skipped or "the training ended before"
    tried = experiments.tried.get(KEPT_GRADIENTS)
    return DiscardedGradients(elements / of, lines, tried, because, bool(seen.get("not_tried")))


def _not_seen(process: ProcessRecord, experiments: Experiments) -> str:
    compiled = process.info.get("compiled")
    return experiments.skipped or ("the model is compiled" if compiled else "no steps after the window were looked at")


def _clips(process: ProcessRecord) -> bool:
    updates = np.unique(process.of_kinds(kinds.OPTIMIZER)["arg"]).tolist()
    return any("clip_grad_norm" in process.names.text(id) for id in updates)
