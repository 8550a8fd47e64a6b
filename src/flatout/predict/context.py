"""The input of causes and remedies: the measured run, and the rate model fitted to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.rate_model import RateModel, fit
from flatout.predict.whatif import WhatIf


@dataclass(frozen=True)
class Context:
    """One measured run with its model. A diagnosis makes one: fitting takes most of a diagnosis' time.

    Attributes:
        run: the measured run.
        fitted: the rate model; None when the window holds no training step.
    """

    run: MeasuredRun
    fitted: RateModel | None

    @classmethod
    def of(cls, run: MeasuredRun) -> Context:
        """Fit the model to a run."""
        return cls(run, fit(run))

    @property
    def model(self) -> RateModel:
        """The fitted model.

        Raises:
            ValueError: the window holds no training step.
        """
        if self.fitted is None:
            raise ValueError("no rate model: the window holds no training step")
        return self.fitted

    @cached_property
    def whatif(self) -> WhatIf | None:
        """Simulations of other loader settings; None where the fetches were not counted."""
        counted = self.run.loading is not None and self.loader.fetch.blocked_s is not None
        return WhatIf(self.run, self.model) if counted and self.loader.fetch.cpu_s is not None else None

    @property
    def loader(self) -> LoaderStats:
        """The training's DataLoader.

        Raises:
            ValueError: the training uses none.
        """
        if self.run.loading is None:
            raise ValueError("the training uses no DataLoader")
        return self.run.loading
