"""Results of trials: plain objects for the terminal, JSON and the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flatout.compare.ratio import Ratio
from flatout.errors import Interrupted
from flatout.probe.settings import combined
from flatout.results import Gain, RemedyBundle

KEPT, DROPPED = "kept", "dropped"
UNCONFIRMED = "unconfirmed"  # a gain was seen that its pairs do not prove
UNMEASURED = "unmeasured"  # a run without the remedy failed, which says nothing about the remedy


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        remedy: its id.
        title: with its value.
        semantic_class: of the remedy.
        settings: applied to the training, on top of those kept before.
        predicted: factor on samples/s.
        outcome: KEPT, DROPPED, UNCONFIRMED or UNMEASURED, or why the run with the remedy does not count (oom, guarded,
            failed, refused, too_short).
        why: one sentence.
        ratio: measured; None: no complete pair.
        loss: the statement of the loss check; empty: not reached.
        wall_s: duration.
        how: the change as a person would write it.
        stalled: pairs that were left out because the machine stalled.
        live: it was measured in blocks of one process, so that only the proof can keep it.
        restarted: why the training was started anew for each run instead.
        cost: of a copy that was staged for it: files, bytes, seconds, predicted_s; empty: no copy.
    """

    remedy: str
    title: str
    semantic_class: str
    settings: Mapping[str, Any]
    predicted: Gain
    outcome: str
    why: str
    ratio: Ratio | None = None
    loss: str = ""
    wall_s: float = 0.0
    how: str = ""
    stalled: int = 0
    cost: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False
    restarted: str = ""

    @property
    def screened(self) -> bool:
        """True if it is kept only as far as the proof confirms it."""
        return self.live and self.outcome == KEPT

    def to_dict(self) -> dict[str, Any]:
        """For JSON and the journal."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Trial:
        """Read the result of ``to_dict``."""
        ratio = fields.get("ratio")
        return cls(
            **{
                **fields,
                "predicted": Gain(**fields["predicted"]),
                "ratio": Ratio(**ratio) if ratio else None,
            }
        )


@dataclass(frozen=True)
class Proof:
    """The original training against all kept remedies.

    Attributes:
        before: samples/s (or steps/s, see ``unit``), median of the runs.
        after: the same with what was kept.
        ratio: after over before, with its 90% interval.
        unit: of the rates.
        loss: the statement of the loss check.
        loss_passed: True if it passed.
    """

    before: float
    after: float
    ratio: Ratio
    unit: str
    loss: str
    loss_passed: bool

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` shows it."""
        return {
            "before": self.before,
            "after": self.after,
            "unit": self.unit,
            "speedup": self.ratio.factor,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "pairs": self.ratio.pairs,
            "between": self.ratio.between,
            "uneven": self.ratio.uneven,
            "loss": self.loss,
            "loss_passed": self.loss_passed,
        }


@dataclass(frozen=True)
class FixResult:
    """The outcome of ``flatout fix``.

    Attributes:
        command: the user's.
        before: samples/s of the first look.
        unit: of the rates.
        verdict: of the first diagnosis.
        tried: trials, in order.
        untried: (title, why) of remedies without a trial.
        proof: None: nothing was kept, or it could not be finished.
        ended: why it ended, one sentence.
        isolation: of the trials' writes, one sentence.
        folder: of the journal.
        seconds: duration.
        interrupted: by this; None: it was not.
        loader: settings of the training's DataLoader.
        plans: bundles of remedies, as the first diagnosis predicts them, without those that trials refuted.
        resumed_after: trials that were made before a fix was resumed: ``before`` and their rates are of then.
        crowded: that other processes used the cores, one sentence; empty: none did.
    """

    command: tuple[str, ...]
    before: float
    unit: str
    verdict: str
    tried: tuple[Trial, ...]
    untried: tuple[tuple[str, str], ...]
    proof: Proof | None
    ended: str
    isolation: str
    folder: str
    seconds: float
    interrupted: Interrupted | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    plans: tuple[RemedyBundle, ...] = ()
    resumed_after: int | None = None
    crowded: str = ""

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The trials whose remedies were kept, in the order in which they were added."""
        return tuple(trial for trial in self.tried if trial.outcome == KEPT)

    @property
    def promising(self) -> tuple[Trial, ...]:
        """Trials whose gain is not proved, the surest first."""
        found = [trial for trial in self.tried if trial.outcome == UNCONFIRMED]
        return tuple(sorted(found, key=lambda trial: -(trial.ratio.low if trial.ratio else 0.0)))

    @property
    def settings(self) -> dict[str, Any]:
        """All that was kept, by name."""
        return merged(self.kept)


@dataclass
class TrialLog:
    """Trials so far, which grow while they are made."""

    tried: list[Trial] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        """All that was kept, by name."""
        return merged([trial for trial in self.tried if trial.outcome == KEPT])


def refuted(tried: Sequence[Trial]) -> frozenset[str]:
    """Ids of the remedies whose trials, at any value, ended badly."""
    return frozenset(
        trial.remedy for trial in tried if trial.outcome not in (KEPT, UNCONFIRMED, UNMEASURED)
    ) - frozenset(trial.remedy for trial in tried if trial.outcome in (KEPT, UNCONFIRMED))


def merged(kept: Any) -> dict[str, Any]:
    """The settings of several trials; later ones win."""
    return combined(*(trial.settings for trial in kept))
