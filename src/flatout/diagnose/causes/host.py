"""Causes in the training process itself, outside forward, backward and optimizer."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest
from flatout.diagnose.sentences import where
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import freeing_s
from flatout.predict.pipeline import Change
from flatout.results import Cause, Evidence
from flatout.units import duration, percent


def _works_between_phases(context: Context, found: Cause) -> str:
    line = where(context.run, "host_other")
    return f"Code of the training loop outside the model takes {percent(found.share)} of the time{line}."


@cause("training", sentence=_works_between_phases)
def main_process_work(context: Context) -> Found | Lacks | None:
    """The user's own code between the phases of a step."""
    return _in_step(context, "host_other", "other code in the training process", 0.8)


def _waits_for_own_input(context: Context, found: Cause) -> str:
    run = context.run
    wait = percent(run.ledger.share("batch_wait"))
    return f"The training waits {wait} of the time for input that comes from no DataLoader{where(run, 'batch_wait')}."


@cause("data", sentence=_waits_for_own_input)
def own_input(context: Context) -> Found | Lacks | None:
    """Input without a DataLoader: the training prepares its batches itself, or waits for whatever does."""
    if context.run.loading is not None:
        return None
    return _in_step(context, "batch_wait", "input that comes from no DataLoader", 0.8)


def _writes_logs(context: Context, found: Cause) -> str:
    return f"Writing logs and metrics takes {percent(found.share)} of the time{where(context.run, 'logging')}."


@cause(
    "training",
    id="logging",
    sentence=_writes_logs,
)
def writing_logs(context: Context) -> Found | Lacks | None:
    """Writing logs and metrics from the training loop."""
    return _in_step(context, "logging", "writing logs and metrics", 0.9)


def _writes_checkpoints(context: Context, found: Cause) -> str:
    return f"The training stands still {percent(found.share)} of the time while checkpoints are written."


@cause("training", sentence=_writes_checkpoints)
def checkpoint(context: Context) -> Found | Lacks | None:
    """Writing checkpoints while the training waits."""
    run = context.run
    return _between_steps(run, "checkpoint", NOISE_SHARE, "writing checkpoints", run.checkpoints, "write")


def _validates(context: Context, found: Cause) -> str:
    return f"Validation takes {percent(found.share)} of the time."


@cause(
    "training",
    id="validation",
    sentence=_validates,
)
def validating(context: Context) -> Found | Lacks | None:
    """Validating more often than the training can afford.

    Validation is wanted work: it is called a fault only where removing all of it would be a material gain.
    """
    run = context.run
    return _between_steps(run, "validation", MATERIAL_SHARE, "validation", run.validations, "pass")


@cause("data")
def epoch_start(context: Context) -> Found | Lacks | None:
    """Beginning an epoch takes long in the training process: building lists, shuffling, sampling.

    Starting workers and shutting them down is another cause, and another part of the account.
    """
    run = context.run
    if run.ledger.window_s <= 0:
        return None
    seconds = run.seconds("epoch_boundary.start")
    if run.loading:
        # The indices of further batches, chosen ahead there, are not the start's: each batch costs that.
        seconds += run.loading.delivery.sampling_s - run.loading.delivery.indices_ahead_s
    share = seconds / run.ledger.window_s
    if share < NOISE_SHARE:
        return None
    times = run.loading.delivery.epochs_started if run.loading else 0
    each = f": {duration(seconds / times)} for each of {times}" if times else ""
    return Found(
        title="beginning an epoch takes long: sampling, shuffling, building lists",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(f"{duration(seconds)} at the beginning of epochs{each}", {"seconds": seconds, "epochs": times}),
            *hottest(run.lines("epoch_boundary.start"), 2),
        ),
    )


def _in_step(context: Context, account: str, what: str, confidence: float) -> Found | Lacks | None:
    """Work that overlaps with the workers: it counts only to the extent that batches would be ready without it."""
    run = context.run
    model = context.fitted
    if model is None:
        return Lacks(NO_STEP)
    # Freeing large batches is not the loop's own code, though the time passes there.
    seconds = run.seconds(account) - (freeing_s(run) if account == "host_other" else 0.0)
    each_s = seconds / model.batches
    share = model.recovered(Change(step_removed_s=each_s, step_cpu_removed_s=each_s))
    if share < NOISE_SHARE:
        return None
    text = f"{duration(each_s)} a step, {percent(seconds / run.ledger.window_s)} of the time"
    return Found(
        title=f"{what} holds up the steps",
        share=share,
        # A GPU works on while the host is busy: without its busy time, part of this may cost nothing.
        confidence=(
            confidence if run.uses_gpu is False or run.usage.device_busy_share is not None else confidence - 0.3
        ),
        evidence=(
            Evidence(text, {"seconds_per_step": each_s, "account": run.ledger.share(account)}),
            *_never_sampled(run, account),
            *hottest(run.lines(account), 3),
        ),
    )


def _never_sampled(run: MeasuredRun, account: str) -> tuple[Evidence, ...]:
    """The position in a step of code that no stack sample hit, if it is a material part."""
    found = run.ledger.account(account)
    parts = [child for child in found.children if child.id.startswith(f"{account}.between_")] if found else []
    largest = max(parts, key=lambda child: child.seconds, default=None)
    if largest is None or found is None or largest.seconds < MATERIAL_SHARE * found.seconds:
        return ()
    return (Evidence(f"{duration(largest.seconds)} {largest.label}", {"seconds": largest.seconds}),)


def _between_steps(
    run: MeasuredRun, account: str, least: float, what: str, times: int | None, noun: str
) -> Found | Lacks | None:
    """Work during which no step runs: all of it counts."""
    if run.ledger.window_s <= 0:
        return Lacks(NO_STEP)
    seconds, share = run.seconds(account), run.ledger.share(account)
    if share < least:
        return None
    text = f"{duration(seconds)}, {percent(share)} of the time"
    values: dict[str, float | int | str] = {"seconds": seconds}
    if times:
        plural = noun if times == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
        text += f": {times} {plural} of {duration(seconds / times)}"
        values["count"] = times
    return Found(
        title=f"{what} stops the training",
        share=share,
        confidence=0.9,
        evidence=(Evidence(text, values), *hottest(run.lines(account))),
    )
