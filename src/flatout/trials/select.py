"""Which remedy is tried next, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flatout.measure.thresholds import NOISE_SHARE
from flatout.results import Diagnosis, Remedy
from flatout.trials import local_copy
from flatout.trials.local_copy import LocalCopy
from flatout.trials.locations import SettingLocations
from flatout.trials.result import Trial
from flatout.trials.settings import PLACED_ONLY
from flatout.units import interval


@dataclass
class Choice:
    """Chooses by what the user allows.

    Attributes:
        allowed: semantic classes of remedies.
        copy: of the data, which a trial may read from.
        places: where settings of the user's own are; None: nowhere.
        untried: by title: what was not tried, and why.
    """

    allowed: frozenset[str]
    copy: LocalCopy
    places: SettingLocations | None
    untried: dict[str, tuple[str, str]] = field(default_factory=dict)

    def next(self, diagnosis: Diagnosis, tried: Sequence[Trial], kept: Mapping[str, Any]) -> Remedy | None:
        """The first that a trial can tell from noise, that can be put into the command, and that was not tried.

        Args:
            diagnosis: its remedies come with the largest predicted gain first.
            tried: so far.
            kept: settings, by name.
        """
        done = {_key(trial.remedy, trial.settings) for trial in tried}
        for found in diagnosis.remedies:
            if found.gain.high < 1.0 + 2 * NOISE_SHARE:
                continue
            remedy, why = self._with_copy(found, diagnosis.loader)
            why = why or self._barred(remedy)
            if why:
                self.untried[remedy.title] = (f"{remedy.title}, predicted {interval(remedy.gain)}", why)
            elif _key(remedy.id, remedy.settings) not in done and _changes(remedy, kept):
                return remedy
        return None

    def no_time(self, remedy: Remedy) -> None:
        """Note that it would have been next."""
        self.untried[remedy.title] = (remedy.title, "no time left in the budget")

    def _barred(self, remedy: Remedy) -> str:
        if not remedy.settings or self._has_no_place(remedy):
            return f"has to be done by hand: {remedy.how}"
        if remedy.semantic_class not in self.allowed:
            return f"changes what is trained ({remedy.semantic_class}): --allow {remedy.semantic_class} tries it"
        return ""

    def _with_copy(self, remedy: Remedy, loader: Mapping[str, Any]) -> tuple[Remedy, str]:
        """With what reads from a copy; or why none can be made."""
        if remedy.id != local_copy.REMEDY:
            return remedy, ""
        settings = self.copy.settings(loader)
        if isinstance(settings, str):
            return remedy, settings
        return replace(remedy, settings=settings), ""

    def _has_no_place(self, remedy: Remedy) -> bool:
        """Whether it needs a setting of the user's own that was not found."""
        places = self.places.placed(remedy.settings) if self.places is not None else set()
        return any(name in PLACED_ONLY and name not in places for name in remedy.settings)


def _changes(remedy: Remedy, kept: Mapping[str, Any]) -> bool:
    """Whether it would change anything that is not kept at that value."""
    return any(kept.get(name) != value for name, value in remedy.settings.items())


def _key(remedy: str, settings: Mapping[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]]:
    return remedy, tuple(sorted((name, str(value)) for name, value in settings.items()))
