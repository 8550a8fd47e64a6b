"""Causes in the training process itself, outside forward, backward and optimizer."""

from __future__ import annotations

import math
from dataclasses import replace

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause, lacks_loader
from flatout.diagnose.evidence import hottest
from flatout.diagnose.reads import beside_reads
from flatout.diagnose.sentences import BLOCKED, COMPUTING, called_from, where
from flatout.measure.called_functions import METRICS, package_of
from flatout.measure.input_accounts import PRODUCER
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import DOMINANT_SHARE, MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import freeing_s
from flatout.predict.step_changes import shorter_step
from flatout.results import Account, Cause, Evidence, Line
from flatout.units import duration, of_cores, percent, size

# A larger batch makes these rarer too, and changes what is learned: of nearly as much time, they go first.
_BATCH, _NEARLY = ("small_batch",), 0.7
_METRICS = "metrics that each step computes hold it up"
_LONGEST_PASS_S = 600.0  # that a profile is proposed to hold
_LARGE_PIECES = 0.1  # of the time, without an operator; less may be disturbances of the few steps that were traced


def _works_between_phases(context: Context, found: Cause) -> str:
    if found.title == _METRICS:
        return (
            f"Metrics that each step computes take {percent(found.share)} of the time{where(context.run, 'forward')}."
        )
    account = "host_other" if context.run.seconds("host_other") >= _computing_s(context) else "loss"
    line = where(context.run, account)
    return f"Code of the training loop outside the model takes {percent(found.share)} of the time{line}."


@cause("training", hides=_BATCH, hides_from=_NEARLY, sentence=_works_between_phases)
def main_process_work(context: Context) -> Found | Lacks | None:
    """The user's own code between the phases of a step, or in one of them without an operator of torch."""
    between = _in_step(context, "host_other", "other code in the training process", 0.8)
    inside = max(filter(None, (_without_operators(context), _metrics(context))), key=_share, default=None)
    if not isinstance(between, Found) or inside is None:
        return inside or between
    share = min(between.share + inside.share, 1.0)
    first, second = sorted((between, inside), key=lambda found: -found.share)
    return replace(first, share=share, evidence=(*first.evidence, *second.evidence))


def _share(found: Found) -> float:
    return found.share


def _metrics(context: Context) -> Found | None:
    """Metrics that forward pass and loss compute."""
    functions = context.run.called(METRICS)
    if context.fitted is None or not functions:
        return None
    each_s = sum(one.seconds for one in functions) / context.model.batches
    share = context.model.recovered(shorter_step(each_s))
    if share < NOISE_SHARE:
        return None
    text = f"{duration(each_s)} a step pass in {functions[0].name} ({package_of(functions[0].file)})"
    return Found(
        title=_METRICS,
        share=share,
        confidence=0.8,
        evidence=(Evidence(text, {"metrics_s": each_s}), *hottest(context.run.lines("forward", 3), 3)),
    )


def _without_operators(context: Context) -> Found | None:
    """Code in forward pass, loss or backward pass that calls no operator for milliseconds, as in NumPy or Python."""
    run, model = context.run, context.fitted
    seconds = _computing_s(context)
    if model is None or seconds <= 0:
        return None
    each_s = seconds / model.batches
    share = model.recovered(shorter_step(each_s))
    if share < _LARGE_PIECES:
        return None
    # A backward pass is torch's own, but for functions of the user's.
    account = "loss" if run.seconds("loss") >= DOMINANT_SHARE * seconds else "forward"
    text = f"{duration(each_s)} a step pass in forward pass, loss and backward pass without an operator of torch"
    return Found(
        title="code without operators holds up the steps",
        share=share,
        confidence=0.75,
        evidence=(Evidence(text, {"without_operators_s": each_s}), *hottest(run.lines(account, 3), 3)),
    )


def _computing_s(context: Context) -> float:
    """Seconds of the window in which a step computes without operators; waits for the interpreter lock left out."""
    run, operators = context.run, context.run.operators
    if isinstance(operators, str) or operators is None or context.fitted is None:
        return 0.0
    lock_s = run.lock.share * context.fitted.now.total_s if run.lock and not isinstance(run.lock, str) else 0.0
    each_s = min(operators.other_code_s - lock_s, operators.computed_s - operators.blocked_s)
    return max(each_s, 0.0) * run.ledger.steps.count


def _waits_for_own_input(context: Context, found: Cause) -> str:
    run = context.run
    wait, awaited = run.ledger.share("batch_wait"), run.ledger.share(PRODUCER)
    if awaited > DOMINANT_SHARE * wait:
        work = _main_work(run, (PRODUCER,))
        if work is None:
            return (
                f"The training waits {percent(wait)} of the time for input that its own threads or processes make"
                + (f"{called_from(run.lines(PRODUCER))}.")
            )
        return f"The training waits {percent(wait)} of the time for input that its own threads make: {work}."
    work = _main_work(run, ("batch_wait.fetch_cpu", "batch_wait.fetch_blocked"))
    if work is None:
        return f"The training waits {percent(wait)} of the time for input that comes from no DataLoader" + (
            f"{where(run, 'batch_wait')}."
        )
    return f"The training makes its own input {percent(wait)} of the time: {work}."


def _main_work(run: MeasuredRun, accounts: tuple[str, ...]) -> str | None:
    """The largest kind of work in some accounts in words, with its share of the time and the user's line."""
    ready_s = run.seconds("batch_wait.fetch_cpu", "batch_wait.fetch_runqueue")
    queued = run.seconds("batch_wait.fetch_runqueue") / ready_s if ready_s else 0.0
    seconds = {
        part: part.seconds / (1.0 - min(queued, 0.99)) if id == "batch_wait.fetch_cpu" else part.seconds
        for id in accounts
        if (account := run.ledger.account(id))
        for part in account.children
    }
    top = max(seconds, key=lambda part: seconds[part], default=None)
    if top is None:
        return None
    _, state, group = top.id.split(".", 2)
    words = BLOCKED.get(group, "blocked") if state == "fetch_blocked" else COMPUTING.get(group, "computing")
    crowded = state == "fetch_cpu" and queued > DOMINANT_SHARE
    share = percent(seconds[top] / run.ledger.window_s)
    without_core = f", {percent(queued)} of that without a core" if crowded else ""
    return f"{words} {share}{called_from(top.lines or run.lines('batch_wait'))}{without_core}"


@cause("data", sentence=_waits_for_own_input)
def own_input(context: Context) -> Found | Lacks | None:
    """Input without a DataLoader: the training prepares its batches itself, or waits for whatever does."""
    run = context.run
    if run.loading is not None:
        return None
    if reason := run.process.untimed.get("loaders"):
        return Lacks(f"a DataLoader could not be timed here ({reason})")
    found = _in_step(context, "batch_wait", "input that comes from no DataLoader", 0.8)
    if not isinstance(found, Found):
        return found
    parts = [account for account in _wait_parts(run) if account.seconds > 0]
    if not parts:
        return found
    text = ", ".join(f"{percent(account.seconds / run.seconds('batch_wait'))} {account.label}" for account in parts)
    values: dict[str, float | int | str] = {account.id: account.seconds for account in parts}
    makers = run.ledger.account(PRODUCER)
    lines = makers.children[0].lines if makers and makers.children else ()
    divided = (Evidence(f"of it: {text}", values), *_made_by(run), *hottest(lines))
    return replace(found, evidence=(found.evidence[0], *divided, *found.evidence[1:]))


def _made_by(run: MeasuredRun) -> tuple[Evidence, ...]:
    """The child processes that make what the training waits for."""
    made = run.usage.makers
    if made is None or run.ledger.share(PRODUCER) <= DOMINANT_SHARE * run.ledger.share("batch_wait"):
        return ()
    each = made.cores / made.processes
    values: dict[str, float | int | str] = {"processes": made.processes, "cores": made.cores}
    count = "one process" if made.processes == 1 else f"{made.processes} processes"
    text = (
        f"made in {count} of the training's own, with {of_cores(made.cores)} in all: each is on a core "
        f"{percent(each)} of the time"
    )
    if made.runqueue_share is not None:
        text += f" and waiting for one {percent(made.runqueue_share)}"
        values["runqueue_share"] = made.runqueue_share
    if made.bytes_each:
        text += f"; {size(made.bytes_each)} of memory each, shared pages included"
        values["bytes_each"] = made.bytes_each
    return (Evidence(text, values),)


def _wait_parts(run: MeasuredRun) -> tuple[Account, ...]:
    wait = run.ledger.account("batch_wait")
    return wait.children if wait else ()


def _writes_logs(context: Context, found: Cause) -> str:
    return f"Writing logs and metrics takes {percent(found.share)} of the time{where(context.run, 'logging')}."


@cause(
    "training",
    id="logging",
    hides=_BATCH,
    hides_from=_NEARLY,
    sentence=_writes_logs,
)
def writing_logs(context: Context) -> Found | Lacks | None:
    """Writing logs and metrics from the training loop."""
    return _in_step(context, "logging", "writing logs and metrics", 0.9)


def seen_once(cause: Cause) -> bool:
    """It stopped the training a single time in the window."""
    return cause.id in ("validation", "checkpoint") and any(one.values.get("count") == 1 for one in cause.evidence)


def _writes_checkpoints(context: Context, found: Cause) -> str:
    if seen_once(found):
        return f"One checkpoint takes {percent(found.share)} of the recorded time; how often it comes is not known."
    return f"The training stands still {percent(found.share)} of the time while checkpoints are written."


@cause("training", hides=_BATCH, hides_from=_NEARLY, sentence=_writes_checkpoints)
def checkpoint(context: Context) -> Found | Lacks | None:
    """Writing checkpoints while the training waits."""
    run = context.run
    return _between_steps(run, "checkpoint", NOISE_SHARE, "writing checkpoints", run.checkpoints, "write")


def _validates(context: Context, found: Cause) -> str:
    if seen_once(found):
        return f"One validation takes {percent(found.share)} of the recorded time; how often it comes is not known."
    return f"Validation takes {percent(found.share)} of the time."


@cause(
    "training",
    id="validation",
    hides=_BATCH,
    hides_from=_NEARLY,
    sentence=_validates,
)
def validating(context: Context) -> Found | Lacks | None:
    """Validating more often than the training can afford.

    Validation is wanted work: it is called a fault only where removing all of it would be a material gain.
    """
    run = context.run
    found = _between_steps(run, "validation", MATERIAL_SHARE, "validation", run.validations, "pass")
    if found is None and not run.validations and (because := _without_end_of_pass(run)):
        return Lacks(because)
    if isinstance(found, Found) and run.validation_unfinished:
        stopped = Evidence("the recording was stopped in the last one, which takes longer than that")
        found = replace(found, evidence=(found.evidence[0], stopped, *found.evidence[1:]))
    with_gradients = run.validation_calls.with_gradients
    if isinstance(found, Found) and with_gradients > DOMINANT_SHARE:
        part = percent(with_gradients) if with_gradients < 1 else "each"
        text = f"{part} of its forward passes keeps what only a backward pass needs"
        values: dict[str, float | int | str] = {"with_gradients": with_gradients}
        kept = Evidence(f"{text}: no torch.no_grad() or torch.inference_mode() around them", values)
        found = replace(found, evidence=(*found.evidence, kept))
    workers = run.validation_workers
    if not isinstance(found, Found) or workers is None or lacks_loader(context) is not None:
        return found
    started = workers.seconds / run.ledger.window_s  # worker_restart, whose remedy leaves the validation as it is
    text = f"of that, {duration(workers.seconds)} for starting and ending workers"
    own = found.share - started
    if own < MATERIAL_SHARE:
        return None
    return replace(found, share=own, evidence=(*found.evidence, Evidence(text, {"starts_s": workers.seconds})))


def _without_end_of_pass(run: MeasuredRun) -> str:
    """Why a validation after each pass may be missing; empty: a pass ended, or how long one is is not known."""
    loader, steps = run.loading, run.ledger.steps.count
    if loader is None or loader.delivery.epochs_started or not loader.delivery.steps_of_pass or not steps:
        return ""
    pass_s = loader.delivery.steps_of_pass * run.ledger.window_s / steps
    longer = f": --seconds {math.ceil(1.5 * pass_s)} holds one" if pass_s <= _LONGEST_PASS_S else ""
    return f"the window held no end of a pass over the training data, which takes about {duration(pass_s)}{longer}"


@cause("data")
def epoch_start(context: Context) -> Found | Lacks | None:
    """Beginning an epoch takes long: building lists, shuffling, sampling, what the data set's ``__iter__`` does first.

    Starting workers and shutting them down is another cause, and another part of the account.
    """
    run = context.run
    if run.ledger.window_s <= 0:
        return None
    seconds = run.seconds("epoch_boundary.start")
    if run.loading:
        # The indices of further batches, chosen ahead there, are not the start's: each batch costs that.
        seconds += run.loading.delivery.sampling_s - run.loading.delivery.indices_ahead_s
    evidence = []
    if run.loading and (first := run.loading.workers.pass_first_fetch).slow:
        seconds += first.waited_s
        made_in = " in a worker" if run.loading.settings.num_workers else ""
        text = (
            f"the first fetch of a pass takes {duration(first.mean_s)}{made_in}, a usual one "
            f"{duration(first.usual_s)}: waiting for these took {duration(first.waited_s)}"
        )
        evidence.append(Evidence(text, {"pass_first_s": first.mean_s, "pass_first_waited_s": first.waited_s}))
        if first.part >= DOMINANT_SHARE:  # of the fetches, so that their lines are those of it
            evidence += hottest(run.loading.functions.cpu_lines, 2)
    share = seconds / run.ledger.window_s
    if share < NOISE_SHARE:
        return None
    times = run.loading.delivery.epochs_started if run.loading else 0
    each = f": {duration(seconds / times)} for each of {times}" if times else ""
    return Found(
        title="beginning an epoch takes long: sampling, shuffling, building lists, reading",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(f"{duration(seconds)} at the beginning of epochs{each}", {"seconds": seconds, "epochs": times}),
            *evidence,
            *hottest(run.lines("epoch_boundary.start"), 2),
        ),
    )


def _in_step(context: Context, account: str, what: str, confidence: float) -> Found | Lacks | None:
    """Work that overlaps with the workers: it counts only to the extent that batches would be ready without it."""
    run = context.run
    model = context.fitted
    if model is None:
        return Lacks(NO_STEP)
    seconds = run.seconds(account)
    reading: tuple[Line, ...] = ()
    if account == "host_other":
        # Freeing large batches is not the loop's own code, though the time passes there; reads are another cause.
        reading = beside_reads(run)
        seconds -= freeing_s(run) + sum(line.seconds for line in reading)
    each_s = seconds / model.batches
    share = model.recovered(shorter_step(each_s))
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
            *hottest((line for line in run.lines(account, 3 + len(reading)) if line not in reading), 3),
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
    evidence = [Evidence(text, values)]
    if once := times is not None and times <= 1:
        evidence.append(Evidence("seen once: how often it comes, and so its share of a longer run, is not known"))
    return Found(
        title=f"{what} stops the training",
        share=share,
        confidence=0.5 if once else 0.9,
        evidence=(*evidence, *hottest(run.lines(account))),
    )
