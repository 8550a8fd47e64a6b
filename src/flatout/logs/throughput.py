"""Throughput by epoch, cold against warm, from what the log measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from flatout.logs.facts import EpochTime, FileFacts

COLD = 1.2  # a first epoch that takes this many times as long as the later ones


@dataclass(frozen=True)
class Cold:
    """The first epoch beside the later ones.

    Attributes:
        first_s: Its duration.
        warm_s: Median duration of the later ones.
    """

    first_s: float
    warm_s: float

    @property
    def ratio(self) -> float:
        """How many times as long the first took."""
        return self.first_s / self.warm_s


def measured_epochs(facts: FileFacts, phase: str | None = None) -> list[EpochTime]:
    """Epochs with a duration, in their order; those of a table's column "before" count only when asked for."""
    found = [one for one in facts.epochs if one.seconds and one.seconds > 0]
    if phase is not None:
        return [one for one in found if one.phase == phase]
    plain = [one for one in found if not one.phase]
    return plain or [one for one in found if one.phase == "after"]


def steps_of_epoch(facts: FileFacts, one: EpochTime) -> tuple[float | None, str]:
    """Steps that an epoch has by the log's settings, and the words for it."""
    if one.total:
        return one.total, f"its bar has {one.total:.0f}"
    samples, batch = facts.setting("train_samples"), facts.nearest("batch_size", one.source.line)
    if samples is not None and batch is not None and batch.value > 0:
        return (
            samples.value / batch.value,
            f"{samples.value:,.0f} / {batch.value:.0f} = {samples.value / batch.value:.1f}",
        )
    given = facts.nearest("steps_per_epoch", one.source.line)
    return (given.value, f"the log says {given.value:,.0f}") if given else (None, "")


def samples_rate(facts: FileFacts, one: EpochTime) -> float | None:
    """Samples/s of an epoch: its samples over its duration, else what the log printed."""
    samples, batch = facts.setting("train_samples"), facts.nearest("batch_size", one.source.line)
    if one.seconds and one.steps and batch is not None:
        return one.steps * batch.value / one.seconds
    if one.seconds and one.complete and not one.begin and samples is not None and one.of != "progress bar":
        return samples.value / one.seconds
    return one.samples_s


def cold_start(epochs: list[EpochTime]) -> Cold | None:
    """The first epoch against the median of the later complete ones; None: there are not two."""
    whole = [one for one in epochs if one.complete and not one.begin and one.seconds]
    if len(whole) < 2 or (whole[0].epoch is None and len({one.total for one in whole}) > 1):
        return None
    return Cold(whole[0].seconds or 0.0, statistics.median(one.seconds or 0.0 for one in whole[1:]))
