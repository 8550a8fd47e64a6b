"""Selects the remedy to try next, and records why others are not tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flatout.measure.thresholds import NOISE_SHARE
from flatout.probe.settings import SETTINGS, combined
from flatout.results import Diagnosis, Remedy
from flatout.trials.locations import SettingLocations
from flatout.trials.mechanics import Mechanics
from flatout.trials.result import Trial
from flatout.units import interval

# Found by changes that are tried after the window, so by the first run of a fix only.
CAUSES_BY_EXPERIMENT = frozenset(
    {
        "activation_checkpointing",
        "debug_mode",
        "discarded_gradients",
        "frozen_features",
        "stepwise_recurrence",
        "unmerged_layers",
        "spanning_kernels",
        "unfused_functions",
        "coo_products",
        "gathered_weights",
        "stepwise_products",
        "unfused_attention",
        "broadcast_pairs",
        "channels_first",
        "garbage_collection",
        "too_many_threads",
        "too_few_threads",
        "unused_gradients",
    }
)
REMEDIES_BY_EXPERIMENT = frozenset({"threads"})  # for other causes too


def with_found_by_experiments(diagnosis: Diagnosis, earlier: Diagnosis) -> Diagnosis:
    """A diagnosis with the remedies that only the experiments of an earlier run could find.

    The run of a trial has none. Without the cause that is gone since, what else slows the step has a larger share, so
    the gain predicted earlier is a cautious one.
    """
    found = [one for one in earlier.remedies if one.cause in CAUSES_BY_EXPERIMENT or one.id in REMEDIES_BY_EXPERIMENT]
    return _with_others(diagnosis, found)


def with_profiled(diagnosis: Diagnosis, profiled: Diagnosis) -> Diagnosis:
    """The diagnosis of a first look, with what an earlier profile of the same training proposed besides.

    A look is shorter than a profile, and of another moment: what the user has read there is tried, too. A profile of
    another machine counts for nothing.
    """
    return _with_others(diagnosis, profiled.remedies) if profiled.machine == diagnosis.machine else diagnosis


def _with_others(diagnosis: Diagnosis, others: Iterable[Remedy]) -> Diagnosis:
    """Add those of other kinds than it has, and sort by predicted gain."""
    known = {remedy.id for remedy in diagnosis.remedies}
    added = [one for one in others if one.id not in known]
    remedies = sorted((*diagnosis.remedies, *added), key=lambda remedy: -remedy.gain.predicted)
    return replace(diagnosis, remedies=tuple(remedies)) if added else diagnosis


@dataclass
class Choice:
    """Chooses among the remedies of a diagnosis.

    Attributes:
        allowed: semantic classes of remedies.
        mechanics: by name, as remedies name them.
        locations: of the user's settings; None: unknown.
        untried: title -> remedies that were not tried, and why.
        proposed: id -> the latest remedy of this kind that could have been tried.
        next_ones: ids of those that could be tried next, by the latest diagnosis.
        minor: id -> remedy with a smaller gain than a trial can distinguish from noise, by the latest diagnosis.
    """

    allowed: frozenset[str]
    mechanics: Mapping[str, Mechanics]
    locations: SettingLocations | None
    untried: dict[str, tuple[str, str]] = field(default_factory=dict)
    proposed: dict[str, Remedy] = field(default_factory=dict)
    next_ones: frozenset[str] = frozenset()
    minor: dict[str, Remedy] = field(default_factory=dict)

    def eligible(self, diagnosis: Diagnosis, tried: Sequence[Trial], kept: Mapping[str, Any]) -> list[Remedy]:
        """The untried remedies whose gain a trial can distinguish from noise and that the command can take.

        First comes what has most to give and is surest to give it: the largest product of the predicted gain and its
        lower end. Time is short, and a prediction of 1.43x (1.00-2.64) is worth less of it than 1.32x (1.09-1.85).

        Args:
            diagnosis: of the training as it is now.
            tried: so far.
            kept: settings, by name.
        """
        done = {key(trial) for trial in tried}
        found = list[Remedy]()
        self.minor = {}
        for proposed in diagnosis.remedies:
            if proposed.gain.high < 1.0 + 2 * NOISE_SHARE:
                if proposed.settings and not self._barred(proposed) and _changes(proposed, kept):
                    self.minor[proposed.id] = proposed
                continue
            settings = self.mechanics[proposed.mechanics].settings(proposed, diagnosis.loader)
            if isinstance(settings, str):
                remedy, why = proposed, settings
            else:
                remedy = replace(proposed, settings=dict(settings))
                why = self._barred(remedy)
            if why:
                self.untried[remedy.title] = (f"{remedy.title}, predicted {interval(remedy.gain)}", why)
            elif key(remedy) not in done and _changes(remedy, kept):
                found.append(remedy)
        found.sort(key=lambda remedy: -remedy.gain.predicted * remedy.gain.low)
        self.proposed.update({remedy.id: remedy for remedy in found})
        self.next_ones = frozenset(remedy.id for remedy in found)
        return found

    def note_untried(self, tried: Sequence[Trial], kept: Mapping[str, Any]) -> None:
        """Record what could have been tried and was not, and why.

        Args:
            tried: all trials.
            kept: settings, by name.
        """
        done = {trial.remedy for trial in tried}
        for remedy in self.proposed.values():
            if remedy.id in {*done, *self.minor} or remedy.title in self.untried or not _changes(remedy, kept):
                continue
            gone = "not proposed any more with what was kept"
            why = "no time left in the budget" if remedy.id in self.next_ones else gone
            self.untried[remedy.title] = (f"{remedy.title}, predicted {interval(remedy.gain)}", why)
        minor = [remedy for remedy in self.minor.values() if remedy.id not in done]
        if minor:
            titles = "; ".join(f"{remedy.title}, predicted {interval(remedy.gain)}" for remedy in minor)
            self.untried[titles] = (titles, "less than a trial could distinguish from noise")

    def _barred(self, remedy: Remedy) -> str:
        if not remedy.settings or self._has_no_location(remedy):
            return f"has to be done by hand: {remedy.how}"
        if remedy.semantic_class not in self.allowed:
            return f"changes what is trained ({remedy.semantic_class}): --allow {remedy.semantic_class} tries it"
        return ""

    def _has_no_location(self, remedy: Remedy) -> bool:
        """True if the remedy changes a setting that cannot be injected and that the user does not have."""
        located = self.locations.located(remedy.settings) if self.locations is not None else set()
        return any(SETTINGS[name].injector is None and name not in located for name in remedy.settings)


def _changes(remedy: Remedy, kept: Mapping[str, Any]) -> bool:
    """True if the remedy changes any setting that is not already kept at that value.

    What is added to a setting that takes several values decides alone: the others belong to it.
    """
    added = [name for name in remedy.settings if SETTINGS[name].several]
    together = combined(kept, remedy.settings)
    return any(kept.get(name) != together[name] for name in added or remedy.settings)


def key(tried: Remedy | Trial) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What tells one attempt at a remedy from others: its id and its values."""
    name = tried.remedy if isinstance(tried, Trial) else tried.id
    return name, tuple(sorted((setting, str(value)) for setting, value in tried.settings.items()))
