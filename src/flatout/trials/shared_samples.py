"""Decoded samples that the runs of a fix share: a trial is shorter than a pass, and the gain begins with the second."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flatout.errors import CommandError
from flatout.probe.contract import SAMPLES_VARIABLE
from flatout.probe.sample_memory import SampleMemory
from flatout.results import Remedy
from flatout.trials.mechanics import Mechanics
from flatout.trials.outcome import OK, TrialRun
from flatout.trials.result import Trial
from flatout.trials.settings import keep_command
from flatout.units import duration

SETTING, FUNCTIONS = "sample_cache_bytes", "memoize"
BUDGET_SHARE = 0.4  # of the remaining time, that the first pass may take
_SLACK = 1.3  # storing takes time too, and passes vary


@dataclass(frozen=True)
class Pace:
    """How fast the training is now: samples/s, 0.0 if unknown; and the seconds of a run before its first step."""

    rate: float
    start_s: float


class SharedSamples(Mechanics):
    """Memory that this process holds, and one pass of the training that fills it before the trial.

    The runs without the remedy do not look at it.
    """

    def __init__(
        self,
        run: Callable[[Mapping[str, Any], float], TrialRun],
        pace: Callable[[], Pace],
        left_s: Callable[[], float],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Hold nothing yet.

        Args:
            run: makes a run of the training as it is now with these settings besides, of these seconds.
            pace: of the training.
            left_s: of the fix's budget.
            say: called with each progress message.
        """
        self._run, self._pace, self._left_s, self._say = run, pace, left_s, say
        self._memory: SampleMemory | None = None
        self._filled: set[Any] = set()  # the functions whose results a pass has stored
        self._pass_s = 0.0

    def settings(self, remedy: Remedy, loader: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """The remedy's settings; or why the first pass, which gains nothing, cannot be made in time."""
        why = self._barred(remedy.settings, loader)
        return f"{why}: {keep_command(['COMMAND'], remedy.settings)}" if why else remedy.settings

    def _barred(self, settings: Mapping[str, Any], loader: Mapping[str, Any]) -> str:
        """Why no first pass can be made; empty if it can, or was."""
        if settings.get(FUNCTIONS) in self._filled:
            return ""
        pace, samples = self._pace(), loader.get("dataset_len")
        if not isinstance(samples, int) or not pace.rate:
            return "the length of a pass is unknown, and the gain begins with the second one"
        self._pass_s = _SLACK * samples / pace.rate
        if pace.start_s + self._pass_s <= BUDGET_SHARE * self._left_s():
            return ""
        return (
            f"the gain begins with the second pass, and the first takes about {duration(self._pass_s)}, "
            f"of {duration(max(self._left_s(), 0.0))} left"
        )

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Make the first pass, unless it was made.

        Raises:
            CommandError: there is no such memory, or the pass fails.
        """
        if settings.get(FUNCTIONS) in self._filled:
            return
        if self._memory is None:
            os.environ.pop(SAMPLES_VARIABLE, None)
            try:
                self._memory = SampleMemory(int(settings[SETTING]))
            except (OSError, AttributeError) as error:
                raise CommandError(f"memory that processes share cannot be made: {error}") from None
        self._say(f"a first pass, not measured, in which samples are stored: about {duration(self._pass_s)}")
        done = self._run(settings, self._pass_s)
        if done.outcome != OK:
            if not self._filled:
                self._release()
            raise CommandError(f"the first pass failed: {done.detail}")
        self._filled.add(settings.get(FUNCTIONS))
        self._say(f"{self._memory.entries:,} samples are stored")

    def resume(self, kept: Mapping[str, Any], loader: Mapping[str, Any]) -> None:
        """Make the first pass again if samples are kept and there is time; the runs store their own otherwise."""
        if SETTING in kept and not self._barred(kept, loader):
            self.prepare(kept)

    def with_cost(self, trial: Trial, before: float, after: float, loader: Mapping[str, Any]) -> Trial:
        """The trial with a word on what it holds for."""
        stored = self._memory.entries if self._memory is not None else 0
        note = f"holds from the second pass on: the first, which stored {stored:,} samples, gains nothing"
        return replace(trial, why=f"{trial.why}; {note}")

    def clean_up(self, kept: Mapping[str, Any]) -> None:
        """Free the memory; a training with the kept settings makes its own."""
        self._release()

    def _release(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
            self._filled.clear()
            os.environ.pop(SAMPLES_VARIABLE, None)
