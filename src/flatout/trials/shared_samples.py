"""Decoded samples that the runs of a fix share: a trial is shorter than a pass, and the gain begins with the second."""

from __future__ import annotations

import os
import threading
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
from flatout.units import counted, duration

SETTING = "sample_cache_bytes"
FUNCTIONS, FEATURES, WHOLE = "memoize", "features_once", "samples_once"  # whose results lie there
BUDGET_SHARE = 0.4  # of the remaining time, that the first pass may take
_SLACK = 1.3  # storing takes time too, and passes vary
# A pass of unknown length, of input without a DataLoader or of a stream, is over once calls repeat.
_LONGEST_S, _SHORTEST_S = 60.0, 5.0
# Of a pass that takes too long, this much is looked at: calls may repeat within it.
_LOOK_S = 10.0
_STEADY = 0.8
_FULL = 0.95  # of the memory: nothing more may fit
_NO_REPEATS = "its calls did not repeat within {}, and the gain begins when they do"


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
        run: Callable[[Mapping[str, Any], float, Callable[[], bool]], TrialRun],
        pace: Callable[[], Pace],
        left_s: Callable[[], float],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Hold nothing yet.

        Args:
            run: makes a run of the training as it is now with these settings besides, of these seconds, or until it is
                told to end.
            pace: of the training.
            left_s: of the fix's budget.
            say: called with each progress message.
        """
        self._run, self._pace, self._left_s, self._say = run, pace, left_s, say
        self._memory: SampleMemory | None = None
        self._filled: set[Any] = set()  # functions and modules whose results a pass has stored
        self._pass_s = 0.0
        self._watched = False  # whether the next pass has to show that calls repeat
        self._within = False  # or a part of it
        self._repeated = False  # the latest one has shown it

    def settings(self, remedy: Remedy, loader: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """The remedy's settings; or why the first pass, which gains nothing, cannot be made in time."""
        why = self._barred(remedy.settings, loader)
        return f"{why}: {keep_command(['COMMAND'], remedy.settings)}" if why else remedy.settings

    def _barred(self, settings: Mapping[str, Any], loader: Mapping[str, Any]) -> str:
        """Why no first pass can be made; empty if it can, or was."""
        if _stored(settings) in self._filled:
            return ""
        pace, samples = self._pace(), loader.get("dataset_len")
        self._within = False
        self._watched = not isinstance(samples, int) and (bool(loader) or FUNCTIONS in settings)
        if self._watched:
            self._pass_s = min(_LONGEST_S, BUDGET_SHARE * self._left_s() - pace.start_s)
            return "" if self._pass_s >= _SHORTEST_S else "too little time is left to see whether calls repeat"
        if not samples or not pace.rate:
            return "the length of a pass is unknown, and the gain begins with the second one"
        self._pass_s = _SLACK * samples / pace.rate
        if pace.start_s + self._pass_s <= BUDGET_SHARE * self._left_s():
            return ""
        look_s = min(_LONGEST_S, BUDGET_SHARE * self._left_s() - pace.start_s)
        if (FUNCTIONS in settings or loader.get("repeats_within_pass")) and look_s >= 2 * _LOOK_S:
            self._watched = self._within = True
            self._pass_s = look_s
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
        if _stored(settings) in self._filled:
            return
        if self._memory is None:
            os.environ.pop(SAMPLES_VARIABLE, None)
            try:
                self._memory = SampleMemory(int(settings[SETTING]))
            except (OSError, AttributeError) as error:
                raise CommandError(f"memory that processes share cannot be made: {error}") from None
        self._say(f"a first pass, not measured, in which results are stored: about {duration(self._pass_s)}")
        with Growth(self._memory) as growth:
            done = self._run(
                settings,
                self._pass_s,
                lambda: self._watched and (growth.surely_ended or (self._within and growth.steady)),
            )
        failed = f"the first pass failed: {done.detail}" if done.outcome != OK else ""
        if not failed and self._watched and not growth.ended:
            failed = _NO_REPEATS.format(duration(_LOOK_S if growth.steady else self._pass_s))
        if failed:
            if not self._filled:
                self._release()
            raise CommandError(failed)
        self._filled.add(_stored(settings))
        self._repeated = self._watched
        self._say(f"{counted(self._memory.entries, 'result')} stored")

    def resume(self, kept: Mapping[str, Any], loader: Mapping[str, Any]) -> None:
        """Make the first pass again if samples are kept and there is time; the runs store their own otherwise."""
        if SETTING in kept and not self._barred(kept, loader):
            self.prepare(kept)

    def with_cost(self, trial: Trial, before: float, after: float, loader: Mapping[str, Any]) -> Trial:
        """The trial with a word on what it holds for."""
        stored = self._memory.entries if self._memory is not None else 0
        note = f"holds from the second pass on: the first, which stored {stored:,} results, gains nothing"
        if self._repeated:
            note = f"holds once calls repeat: {stored:,} results were stored before"
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


def _stored(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """The functions and the module whose results a pass stores, and whether it stores whole samples."""
    return tuple(map(settings.get, (FUNCTIONS, FEATURES, WHOLE)))


class Growth:
    """Watches the number of stored samples in a thread: once calls repeat, it grows no more."""

    def __init__(self, memory: SampleMemory, every_s: float = 0.2) -> None:
        self._memory, self._every_s = memory, every_s
        self._entries: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Growth:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            self._entries.append(self._memory.entries)

    @property
    def surely_ended(self) -> bool:
        """True if nothing was stored for a third of the time, and some seconds."""
        third = len(self._entries) // 3
        quiet = third * self._every_s > _SHORTEST_S and self._entries[-1] == self._entries[-1 - third]
        return quiet and self.ended

    @property
    def steady(self) -> bool:
        """True if about as many were stored in the second half of some seconds as in the first: none has repeated."""
        since = next((place for place, count in enumerate(self._entries) if count > self._entries[0]), None)
        counts = self._entries[since:] if since is not None else []
        half = len(counts) // 2
        if len(counts) * self._every_s < _LOOK_S:
            return False
        return counts[-1] - counts[half] >= _STEADY * (counts[half] - counts[0])

    @property
    def ended(self) -> bool:
        """True if at most half as many were stored in the last third of the time as in the first, and room is left."""
        since = next((place for place, count in enumerate(self._entries) if count > self._entries[0]), None)
        counts = self._entries[since:] if since is not None else []
        third = len(counts) // 3
        if not third or self._memory.fullness > _FULL:
            return False
        return counts[-1] - counts[-1 - third] <= (counts[third] - counts[0]) / 2
