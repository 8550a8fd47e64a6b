"""What a remedy of the catalogue is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flatout.measure.measured_run import MeasuredRun
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import RateModel
from flatout.results import Cause, Gain

IDENTICAL, NUMERICS, OPTIMISATION, DATA = "identical", "numerics", "optimisation", "data"


@dataclass(frozen=True)
class Context:
    """What a remedy may look at: the run, the cause that it answers, and the fitted model."""

    view: MeasuredRun
    cause: Cause
    model: RateModel


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A remedy with its values filled in for one run.

    ``change`` is the seam to any model of the pipeline: it says what the remedy does to its inputs.
    ``least`` and ``most`` bound a remedy whose own effect is not known exactly.
    """

    title: str
    change: Change
    how: str
    basis: str
    memory_bytes: int | None  # host memory added; None: not known
    least: Change | None = None
    most: Change | None = None
    settings: Mapping[str, Any] | None = None  # as ``flatout run --set`` takes them; None: only a person can do it
    gain: Gain | None = None  # simulated; None: what the model of means makes of ``change``
    recipe: str | None = None  # the same as ``--set`` of a recipe's key; None: recipes have none for it


@dataclass(frozen=True)
class RemedySpec:
    """One remedy of the catalogue."""

    id: str
    causes: tuple[str, ...]  # ids that it answers
    semantic_class: str
    risk: str  # low | medium | high
    propose: Callable[[Context], Proposal | None]  # None: it does not apply to this run
    mechanics: str = ""  # what a trial prepares beside its settings, by name: see trials/mechanics.py
