"""What causes and remedies read: the measured run, and the rate model fitted to it."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.rate_model import RateModel, fit


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

    @property
    def loader(self) -> LoaderStats:
        """The training's DataLoader.

        Raises:
            ValueError: the training uses none.
        """
        if self.run.loading is None:
            raise ValueError("the training uses no DataLoader")
        return self.run.loading
