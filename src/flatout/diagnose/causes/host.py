"""Causes in the training process itself, outside forward, backward and optimizer."""

from __future__ import annotations

from flatout.diagnose.causes.fetching import hottest
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.fetch_changes import freeing_s
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import fit
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, percent

_NO_STEP = "no training step was seen after the first one"


def main_process_work(view: MeasuredRun) -> Cause | NotMeasured | None:
    """The user's own code between the phases of a step."""
    return _in_step(view, "main_process_work", "host_other", "other code in the training process", 0.8)


def own_input(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Batches that come from no DataLoader: the training makes them itself, or waits for what makes them."""
    if view.loading is not None:
        return None
    return _in_step(view, "own_input", "batch_wait", "input that comes from no DataLoader", 0.8)


def logging(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Writing logs and metrics from the training loop."""
    return _in_step(view, "logging", "logging", "writing logs and metrics", 0.9)


def checkpoint(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Writing checkpoints while the training stands still."""
    return _between_steps(view, "checkpoint", NOISE_SHARE, "writing checkpoints", view.checkpoints, "write")


def validation(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Validating more often than the training can afford.

    Validation is wanted work: it is called a fault only where removing all of it would be a material gain.
    """
    return _between_steps(view, "validation", MATERIAL_SHARE, "validation", view.validations, "pass")


def epoch_start(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Beginning an epoch takes long in the training process: building lists, shuffling, sampling.

    Starting workers and shutting them down is another cause, and another part of the account.
    """
    if view.ledger.window_s <= 0:
        return None
    seconds = view.seconds("epoch_boundary.start") + (view.loading.sampling_s if view.loading else 0.0)
    share = seconds / view.ledger.window_s
    if share < NOISE_SHARE:
        return None
    times = view.loading.epochs_started if view.loading else 0
    each = f": {duration(seconds / times)} for each of {times}" if times else ""
    return Cause(
        id="epoch_start",
        title="beginning an epoch takes long: sampling, shuffling, building lists",
        share=share,
        confidence=view.confidence(0.8),
        evidence=(
            Evidence(f"{duration(seconds)} at the beginning of epochs{each}", {"seconds": seconds, "epochs": times}),
            *hottest(view.lines("epoch_boundary.start"), 2),
        ),
    )


def _in_step(view: MeasuredRun, id: str, account: str, what: str, confidence: float) -> Cause | NotMeasured | None:
    """Work that overlaps with the workers: it counts only as far as batches would be there in time."""
    model = fit(view)
    if model is None:
        return NotMeasured(id, _NO_STEP)
    # Freeing large batches is no code of the loop's own, though the time passes there.
    seconds = view.seconds(account) - (freeing_s(view) if account == "host_other" else 0.0)
    each_s = seconds / model.batches
    share = model.recovered(Change(busy_removed_s=each_s, busy_cpu_removed_s=each_s))
    if share < NOISE_SHARE:
        return None
    text = f"{duration(each_s)} a step, {percent(seconds / view.ledger.window_s)} of the time"
    return Cause(
        id=id,
        title=f"{what} holds up the steps",
        share=share,
        # A GPU works on while the host is busy: without its busy time, part of this may cost nothing.
        confidence=view.confidence(
            confidence if view.uses_gpu is False or view.usage.device_busy_share is not None else confidence - 0.3
        ),
        evidence=(
            Evidence(text, {"seconds_per_step": each_s, "account": view.ledger.share(account)}),
            *_never_sampled(view, account),
            *hottest(view.lines(account), 3),
        ),
    )


def _never_sampled(view: MeasuredRun, account: str) -> tuple[Evidence, ...]:
    """Where the code lies that the samples have not met, if that is a material part."""
    found = view.ledger.account(account)
    parts = [child for child in found.children if child.id.startswith(f"{account}.between_")] if found else []
    largest = max(parts, key=lambda child: child.seconds, default=None)
    if largest is None or found is None or largest.seconds < MATERIAL_SHARE * found.seconds:
        return ()
    return (Evidence(f"{duration(largest.seconds)} {largest.label}", {"seconds": largest.seconds}),)


def _between_steps(
    view: MeasuredRun, id: str, least: float, what: str, times: int | None, noun: str
) -> Cause | NotMeasured | None:
    """Work during which no step runs: all of it counts."""
    if view.ledger.window_s <= 0:
        return NotMeasured(id, _NO_STEP)
    seconds, share = view.seconds(id), view.ledger.share(id)
    if share < least:
        return None
    text = f"{duration(seconds)}, {percent(share)} of the time"
    values: dict[str, float | int | str] = {"seconds": seconds}
    if times:
        plural = noun if times == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
        text += f": {times} {plural} of {duration(seconds / times)}"
        values["count"] = times
    return Cause(
        id=id,
        title=f"{what} stops the training",
        share=share,
        confidence=view.confidence(0.9),
        evidence=(Evidence(text, values), *hottest(view.lines(id))),
    )
