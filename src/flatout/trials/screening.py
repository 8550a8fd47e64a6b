"""Screening of remedies by live trials: which ones, whether that saves time, and what their result is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flatout.compare.ratio import Ratio
from flatout.measure.thresholds import NOISE_SHARE
from flatout.probe.settings import SETTINGS
from flatout.results import Remedy
from flatout.trials.decide import measured
from flatout.trials.live import PAIRS, Finding, Plan, found, plan
from flatout.trials.outcome import OK, TOO_SHORT, TrialRun
from flatout.trials.result import DROPPED, KEPT, UNCONFIRMED, Proof, Trial
from flatout.trials.sequential import gains
from flatout.trials.trial_run import TrialSetup
from flatout.units import duration

# A restarted trial makes four runs, and two where it drops the remedy; after a live trial one run is diagnosed.
MOST_OF_RUNS = 3
MOST_TOGETHER = 6  # remedies in one process
LONG_START_S = 10.0  # of a training: from here on, live trials are made unless the user says otherwise
_PROMISING = 1.25  # a gain that may be as large is looked at by runs
_LATE = 2.0  # times the planned time at which the blocks are no longer waited for


class BlocksRunner(Protocol):
    """Makes the run of a live trial; see ``run_blocks``."""

    def __call__(
        self, setup: TrialSetup, settings: Mapping[str, Any], plan: Mapping[str, Any], deadline_s: float = ...
    ) -> TrialRun: ...


@dataclass(frozen=True)
class Costs:
    """What runs cost at present.

    Attributes:
        start_s: start-up of a run, before its first step.
        run_s: a whole run of a restarted trial.
        step_s: a step.
        left_s: of the budget.
        step_spread: relative standard deviation of the steps.
    """

    start_s: float
    run_s: float
    step_s: float
    left_s: float
    step_spread: float = 1.0


def barred(blocks: Plan, costs: Costs) -> str:
    """Why a live trial is not made; empty: it is."""
    live_s = costs.start_s + blocks.needed_s
    if live_s > MOST_OF_RUNS * len(blocks.candidates) * costs.run_s:
        return f"blocks would take {duration(live_s)}, and a run takes {duration(costs.run_s)}"
    # The run that is diagnosed, and two pairs of the proof.
    if costs.left_s < live_s + 5 * costs.run_s:
        needed, left = duration(live_s + 5 * costs.run_s), duration(costs.left_s)
        return f"a live trial and the proof after it take {needed}, and {left} of the budget is left"
    return ""


def screen(
    run: Callable[[Mapping[str, Any], Plan], TrialRun],
    candidates: Sequence[Mapping[str, Any]],
    kept: Mapping[str, Any],
    loader: Mapping[str, Any],
    costs: Costs,
    seed: int,
) -> list[Finding]:
    """Measure settings live, one after the other in one process, as many of them as there is time for.

    Args:
        run: makes a run with settings from the start, and a plan of blocks.
        candidates: settings to try, each of which can be switched, the most promising first.
        kept: before.
        loader: settings of the training's DataLoader.
        costs: of runs.
        seed: of the order of the blocks.

    Returns:
        One for each of the first candidates, at least for one.
    """
    for count in range(len(candidates), 0, -1):
        blocks = plan(candidates[:count], {**loader, **kept}, costs.step_s, seed, costs.step_spread)
        why = barred(blocks, costs)
        if not why:
            break
    if why:
        return [Finding(None, why)]
    ran = run(kept, blocks)
    if ran.run is None or ran.outcome not in (OK, TOO_SHORT):
        return [Finding(None, f"the live trial ended: {ran.detail}")] * count
    return found(ran.run, blocks)


def bounded(setup: TrialSetup, blocks: Plan) -> TrialSetup:
    """The setup of a live trial's run: its blocks end it, or their time."""
    return replace(setup, bounds=replace(setup.bounds, seconds=_LATE * blocks.needed_s, steps=None))


def judged(remedy: Remedy, finding: Finding, wall_s: float) -> Trial | None:
    """The trial, if its live measurement decides it; None: runs in processes of their own have to."""
    ratio = finding.ratio
    if ratio is None:
        return None
    gained = gains(ratio)
    nothing = ratio.factor < 1.0 + 0.5 * NOISE_SHARE and ratio.high < _PROMISING
    # Runs of their own could hardly prove what so many pairs in one process leave open.
    small = ratio.pairs >= PAIRS and ratio.high < _PROMISING
    if not (gained or nothing or small or ratio.high < 1.0 + NOISE_SHARE):
        return None
    # A block leaves out what reads other loaders, as a validation does that is called less often.
    if not gained and any(SETTINGS[name].beside_steps for name in remedy.settings):
        return None
    how = f"{measured(ratio)} {finding.because}"
    if gained:
        outcome, why = KEPT, how
    elif nothing or ratio.high < 1.0 + NOISE_SHARE:
        outcome, why = DROPPED, f"no gain that clears {NOISE_SHARE:.0%}: {how}"
    else:
        outcome, why = UNCONFIRMED, f"not decided: {how}"
    return Trial(
        remedy=remedy.id,
        title=remedy.title,
        semantic_class=remedy.semantic_class,
        settings=dict(remedy.settings),
        predicted=remedy.gain,
        outcome=outcome,
        why=why,
        ratio=ratio,
        loss="compared in the proof" if gained else "",
        wall_s=wall_s,
        how=remedy.how,
        live=True,
    )


def undecided(ratio: Ratio | None, because: str) -> str:
    """Why a trial starts the training anew for each run."""
    if ratio is None:
        return because
    return f"the live trial did not decide it: {measured(ratio)} {because}"


def confirmed(proof: Proof | None) -> bool:
    """True if the proof bears what was only screened."""
    return proof is not None and proof.loss_passed and gains(proof.ratio)


def withdrawn(tried: Sequence[Trial], proof: Proof | None) -> list[Trial]:
    """The trials, those that were only screened no longer kept."""
    why = "the proof, in processes of its own, did not confirm it"
    if proof is None:
        why = "there was no proof in processes of its own"
    elif not proof.loss_passed:
        why = f"the proof, in processes of its own, found other losses: {proof.loss}"
    return [
        replace(trial, outcome=UNCONFIRMED, why=f"{trial.why}; not kept: {why}") if trial.screened else trial
        for trial in tried
    ]
