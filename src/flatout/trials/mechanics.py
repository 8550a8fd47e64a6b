"""Mechanics of remedies that need more than settings: something prepared before the trial, removed after the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.results import Remedy
from flatout.trials.result import Trial


class Mechanics:
    """Mechanics of a remedy that needs only its settings; others override methods.

    A remedy names its mechanics in ``RemedySpec.mechanics``.
    """

    def settings(self, remedy: Remedy, loader: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """The settings of its trial; or one sentence: why it cannot be tried here.

        Args:
            remedy: as the diagnosis proposes it.
            loader: settings of the training's DataLoader, as in ``Diagnosis.loader``.
        """
        return remedy.settings

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Prepare the trial with these settings.

        Raises:
            FlatoutError: the preparation failed, and so does the trial.
        """

    def resume(self, kept: Mapping[str, Any], loader: Mapping[str, Any]) -> None:
        """Prepare again what an interrupted fix kept, where it did not outlive that one.

        Args:
            kept: settings, by name.
            loader: as for ``settings``.
        """

    def with_cost(self, trial: Trial, before: float, after: float, loader: Mapping[str, Any]) -> Trial:
        """The trial with the cost of the preparation; rates are in samples/s."""
        return trial

    def clean_up(self, kept: Mapping[str, Any]) -> None:
        """Remove what was prepared, unless the settings that the fix kept need it."""
