"""The parts of a cause, and the decorator that makes one from a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from flatout.diagnose.reliability import most_confidence
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.results import Cause, Evidence, NotMeasured

# The part of the time that removing a cause shortens: only the wait for batches, the input path beyond that wait,
# or the rest of the training. "healthy" means that nothing needs to be removed.
Group = Literal["waiting", "data", "training", "healthy"]
# What the fetching threads compute. Idle cores come before faster code for what has to be done.
NEEDED_WORK = ("cpu_decode", "cpu_transform", "cpu_tokenise", "cpu_read")
COMPUTING_CAUSES = (*NEEDED_WORK, "row_lookup")
HIDING = 0.3  # of the hidden cause's share: a smaller one cannot explain it
NO_STEP = "no training step was seen after the first one"


@dataclass(frozen=True)
class Found:
    """A cause that holds for a run.

    Attributes:
        title: one line.
        share: of the window's wall time, that removing this cause alone would give back.
        confidence: 0..1, with as many batches as a steady mean needs; fewer lower it.
        evidence: sentences with their numbers.
    """

    title: str
    share: float
    confidence: float
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Lacks:
    """The cause cannot be judged, because a signal is missing."""

    because: str


@dataclass(frozen=True)
class CauseSpec:
    """One cause of the catalogue; call it with a context to judge it.

    Attributes:
        id: fixed for good.
        group: what removing it shortens.
        judge: a pure function of the context.
        needs_loader: it concerns the training's DataLoader and its fetches.
        hides: ids of causes that yield less than they seem to, or should not be addressed first, while this one holds.
        hides_from: least share of this cause that hides another one, as a part of the other one's share.
        sentence: the verdict when this cause leads; None: its title and share.
        hides_all_from: the same, as a part of the sum of the shares of all that it hides; 0: only each counts.
    """

    id: str
    group: Group
    judge: Callable[[Context], Found | Lacks | None]
    needs_loader: bool
    hides: tuple[str, ...]
    sentence: Callable[[Context, Cause], str] | None
    hides_from: float = HIDING
    hides_all_from: float = 0.0

    def __call__(self, context: Context) -> Cause | NotMeasured | None:
        """Judge the cause; None: it does not hold for this run.

        What the rule states of its confidence is bounded by how often its kind was right.
        """
        if self.needs_loader and context.run.loading is None and context.run.ledger.share("batch_wait") < NOISE_SHARE:
            return None  # input without a DataLoader, which delays nothing
        because = lacks_loader(context) if self.needs_loader else None
        if because is not None:
            return NotMeasured(self.id, because)
        answer = self.judge(context)
        if isinstance(answer, Lacks):
            return NotMeasured(self.id, answer.because)
        if answer is None:
            return None
        return Cause(
            id=self.id,
            title=answer.title,
            share=answer.share,
            confidence=min(context.run.confidence(answer.confidence), most_confidence(self.id)),
            evidence=answer.evidence,
        )


def cause(
    group: Group,
    *,
    id: str | None = None,
    needs_loader: bool = False,
    hides: tuple[str, ...] = (),
    hides_from: float = HIDING,
    hides_all_from: float = 0.0,
    sentence: Callable[[Context, Cause], str] | None = None,
) -> Callable[[Callable[[Context], Found | Lacks | None]], CauseSpec]:
    """Make a cause from the function that judges it; its id is the function's name, unless ``id`` is given.

    With ``needs_loader`` the function is called only when a model was fitted and fetches were recorded; otherwise the
    cause is not measured.
    """

    def decorate(judge: Callable[[Context], Found | Lacks | None]) -> CauseSpec:
        return CauseSpec(id or judge.__name__, group, judge, needs_loader, hides, sentence, hides_from, hides_all_from)

    return decorate


def lacks_loader(context: Context) -> str | None:
    """Why nothing can be said of the training's DataLoader; None: it was measured."""
    if context.run.loading is None:
        return "no DataLoader was iterated between the first and the last training step"
    if context.fitted is None:
        return NO_STEP
    if len(context.loader.fetch.wall_s) == 0:
        return "no fetch of a batch was recorded between the first and the last training step"
    return None
