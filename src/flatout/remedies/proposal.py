"""The parts of a remedy in the catalogue, and the decorator that makes one from a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.results import Cause, Gain

IDENTICAL, NUMERICS, OPTIMISATION, DATA = "identical", "numerics", "optimisation", "data"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A remedy with its values filled in for one run.

    ``change`` is the interface to any model of the pipeline: the remedy's effect on the model's inputs.
    ``least`` and ``most`` bound a remedy whose effect is uncertain.
    """

    title: str
    change: Change
    how: str
    basis: str
    memory_bytes: int | None  # host memory added; None: unknown
    least: Change | None = None
    most: Change | None = None
    settings: Mapping[str, Any] | None = None  # as ``flatout apply --set`` takes them; None: manual
    gain: Gain | None = None  # simulated; None: the prediction of the model of means for ``change``
    assumes: bool = True  # what the model of the pipeline assumes holds for the gain
    recipe: str | None = None  # the same as ``--set`` of a recipe's key; None: recipes have no such key


Propose = Callable[[Context, Cause], Proposal | None]  # None: it does not apply to this run


@dataclass(frozen=True)
class RemedySpec:
    """One remedy of the catalogue.

    Attributes:
        id: fixed for good.
        causes: ids of the causes that it addresses.
        semantic_class: what it changes besides the speed: nothing, numerics, optimisation or data.
        risk: low, medium or high.
        propose: a pure function of the context and of the cause to answer.
    """

    id: str
    causes: tuple[str, ...]
    semantic_class: str
    risk: str
    propose: Propose
    mechanics: str = ""  # what a trial prepares besides its settings, by name: see trials/mechanics.py


def remedy(
    causes: tuple[str, ...],
    semantic_class: str,
    *,
    risk: str,
    mechanics: str = "",
) -> Callable[[Propose], RemedySpec]:
    """Make a remedy from the function that proposes it; its id is the function's name."""

    def decorate(propose: Propose) -> RemedySpec:
        return RemedySpec(propose.__name__, causes, semantic_class, risk, propose, mechanics)

    return decorate
