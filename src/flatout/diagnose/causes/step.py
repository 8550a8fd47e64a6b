"""Causes inside a step: what keeps forward, backward and optimizer from computing."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest, place
from flatout.measure.lock_waits import LockWaits
from flatout.measure.samples import top_lines
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import rethreaded, shorter_step
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, factor, of_cores, percent

# A quarter of the wall time: every step has some overhead, and to halve this much gives 1.14x.
_LARGE_OVERHEAD = 0.25
# Of another thread of the process: less does not keep a core from an intra-op thread.
_BUSY_CORES = 0.25
_FACTORISED = 0.1  # of the time in 64-bit floats


def _waits_for_lock(context: Context, found: Cause) -> str:
    lock = context.run.lock
    if lock is None or isinstance(lock, str):
        return found.title
    at = f" ({place(lock.lines[0])})" if lock.lines else ""
    if _takes_a_core(context, lock) > lock.share:
        return (
            f"{lock.holder[:1].upper()}{lock.holder[1:]}{at} takes a core and Python's interpreter lock from the "
            f"training: {percent(found.share)} of the time."
        )
    return (
        f"The training thread waits {percent(found.share)} of the time for Python's interpreter lock, "
        f"which {lock.holder} holds{at}."
    )


@cause(
    "training",
    # A thread that computes takes a core, too, which several threads of one operator then wait for; steps that mostly
    # wait take as long with twice the batch; and much of the wait lies between operators, as their overhead does.
    hides=("too_many_threads", "small_batch", "overhead_bound"),
    sentence=_waits_for_lock,
)
def interpreter_lock(context: Context) -> Found | Lacks | None:
    """Another Python thread of the training process holds the interpreter lock, and the training thread waits."""
    run, lock = context.run, context.run.lock
    if lock is None:
        return None
    if isinstance(lock, str):
        return Lacks(lock)
    if lock.of_loader:
        return None
    if context.fitted is None:
        return Lacks(NO_STEP)
    share = lock.share
    if run.uses_gpu is not False and run.usage.device_busy_share is not None:
        share = min(share, 1.0 - run.usage.device_busy_share)  # a wait that the GPU does not notice costs nothing
    # The workers have interpreter locks of their own: their fetches take as long as before.
    share = min(share, context.fitted.now.spare_share)
    if share < NOISE_SHARE:
        return None
    title = f"{lock.holder} holds Python's interpreter lock, which the training thread waits for"
    taken, evidence = _takes_a_core(context, lock), []
    if taken > share:
        share, title = taken, f"{lock.holder} takes a core and Python's interpreter lock from the training"
        evidence.append(_with_fewer_threads(context))
    return Found(
        title=title,
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"the training thread waits {percent(lock.share)} of the time for the lock; "
                f"the process's other Python threads use {of_cores(lock.other_cores)}",
                {"lock_wait": lock.share, "other_threads_cores": lock.other_cores, "thread": lock.thread},
            ),
            *evidence,
            *hottest(lock.lines, 3),
        ),
    )


def _takes_a_core(context: Context, lock: LockWaits) -> float:
    """Share of the time that steps with fewer threads gain, where a Python thread keeps a core from one of them."""
    run = context.run
    best, now = run.experiments.best_threads(), run.process.threads
    if best is None or now is None or run.cores is None or lock.other_cores < _BUSY_CORES:
        return 0.0
    if not best[0] < now <= run.cores < now + lock.other_cores:
        return 0.0
    return context.model.recovered(rethreaded(context, best[1].gain))


def _with_fewer_threads(context: Context) -> Evidence:
    best = context.run.experiments.best_threads()
    assert best is not None
    count, one = best
    return Evidence(
        f"with {counted(count, 'intra-op thread')}, which leaves it a core, a step takes {duration(one.changed_s)}, "
        f"as it is {duration(one.unchanged_s)}",
        {"threads": count, "step_s": one.changed_s, "unchanged_s": one.unchanged_s},
    )


def _is_overhead(context: Context, found: Cause) -> str:
    operators = context.run.operators
    if isinstance(operators, str):
        return found.title
    line = _hottest_line(context)
    return (
        f"{percent(found.share)} of the time passes in Python and in launching operators, not in computing: "
        f"a step calls {operators.count:,.0f} operators{line}."
    )


@cause("training", sentence=_is_overhead)
def overhead_bound(context: Context) -> Found | Lacks | None:
    """The step passes around operators, in Python and in the framework, rather than in their kernels."""
    run, operators = context.run, context.run.operators
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(operators, str):
        return Lacks(operators)
    lock_s = run.lock.share * context.fitted.now.total_s if run.lock and not isinstance(run.lock, str) else 0.0
    removed_s = min(operators.removable_overhead_s, max(operators.overhead_s - lock_s, 0.0))
    share = context.fitted.recovered(shorter_step(removed_s))
    if share < _LARGE_OVERHEAD:
        return None
    where = "the GPU's kernels" if operators.on_device else "them, in Python and in their dispatch"
    lines = [line for account in ("forward", "loss", "backward") for line in run.lines(account)]
    seconds = {line: line.seconds for line in lines}
    return Found(
        title="operators are too many and too small: the time goes to Python and to launching them",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"{operators.count:,.0f} operators a step, half of them shorter than {duration(operators.median_s)}; "
                f"calling one that computes nothing takes {duration(operators.reference_s)} here",
                {"operators": operators.count, "median_s": operators.median_s, "reference_s": operators.reference_s},
            ),
            Evidence(
                f"{percent(operators.overhead_s / operators.computed_s)} of the computation passes between and around "
                f"{where}",
                {"overhead_s": operators.overhead_s, "computed_s": operators.computed_s},
            ),
            *hottest(top_lines(seconds, sum(seconds.values())), 3),
        ),
    )


def _hottest_line(context: Context) -> str:
    """The line of the model's computation with most samples, in brackets."""
    lines = context.run.lines("forward", 1)
    return f" ({place(lines[0])})" if lines else ""


def _computes_wide(context: Context, found: Cause) -> str:
    return f"Operators compute in 64-bit floats: 32-bit ones would save {percent(found.share)} of the time."


@cause("training", sentence=_computes_wide)
def wide_dtype(context: Context) -> Found | Lacks | None:
    """Operators work on float64 or complex128, which take twice the bytes and more of the arithmetic of float32."""
    run, operators = context.run, context.run.operators
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(operators, str):
        return Lacks(operators)
    kernels_s, wide_s = operators.kernels_s, operators.wide_s
    if wide_s <= 0:
        return None
    if operators.factorised_s >= _FACTORISED * wide_s:
        return Lacks(
            f"{percent(operators.factorised_s / wide_s)} of the time in 64-bit floats goes to factorising matrices or "
            "solving with them: whether 32 bits are precise enough is not known"
        )
    # Other overhead does not depend on the type.
    saved_s = operators.in_kernels_s(operators.saved_by_float32_s) + operators.saved_overhead_s
    share = context.fitted.recovered(shorter_step(saved_s))
    if share < NOISE_SHARE:
        return None
    fused = ", and most of the overhead of LSTM layers, which the CPU fuses in 32 bits" if operators.unfused else ""
    product = f"; a matrix product takes {factor(operators.float64_factor)} as long here"
    return Found(
        title="operators compute in 64-bit floats",
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"{percent(wide_s / kernels_s)} of the time in kernels is spent on float64 or complex128"
                f"{'' if operators.on_device else product}",
                {"wide_s": wide_s, "kernels_s": kernels_s, "float64_factor": operators.float64_factor},
            ),
            Evidence(
                f"weights are {run.process.param_dtype or 'of an unknown type'}; "
                "half of the time outside products and convolutions is assumed to go with half of the bytes"
                f"{fused}"
            ),
        ),
    )
