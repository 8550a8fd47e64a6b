"""What slows the step itself, as steps after the window have shown."""

from __future__ import annotations

from flatout.measure.debug_code import ASSERTIONS, CHECKS, PROFILER
from flatout.predict import step_changes
from flatout.predict.context import Context
from flatout.predict.crowded_threads import FewerThreads, fewer_threads, shorter_by
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import removed, rethreaded
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.remedies.reporting import EVERY, calls_every
from flatout.results import Cause
from flatout.units import counted, duration

_HOW = {
    "anomaly_mode": "remove torch.autograd.set_detect_anomaly(True); switch it on again to look for a NaN",
    "profiler": "profile a few steps only: torch.profiler.schedule(wait=100, warmup=3, active=3, repeat=1)",
    "trace_function": "run without the debugger or coverage; measure coverage on a short run",
    "profile_function": "run without cProfile: flatout or py-spy samples instead",
    "monitoring_tool": "run without cProfile or coverage; measure coverage on a short run",
    "tracemalloc": "remove tracemalloc.start() and PYTHONTRACEMALLOC",
    "backward_threads": "remove torch.autograd.set_multithreading_enabled(False)",
    "validate_args": "torch.distributions.Distribution.set_default_validate_args(False)",
    "counting_mode": "count or log in one step, and use its figures: with FlopCounterMode(): only if step == 0",
}
_NUMERIC = {
    "deterministic": "torch.use_deterministic_algorithms(False): two runs then differ in their last bits",
    "cudnn_deterministic": "torch.backends.cudnn.deterministic = False: two runs then differ in their last bits",
}
# What a trial can keep off in an unchanged script.
_SWITCHED = {"anomaly_mode", "tracemalloc", "backward_threads", "validate_args", "deterministic"}
# Measured on single steps; the same part is left out of all.
_BASIS = "measured in steps after the window"


@remedy(("debug_mode",), IDENTICAL, risk="low")
def debugging_off(context: Context, cause: Cause) -> Proposal | None:
    """Switch off what was switched on to find a fault."""
    return _off(context, _HOW)


_CODE = {
    ASSERTIONS: ("check tensors less often", "guard the checks: if step % 100 == 0, or python -O, which drops assert"),
    CHECKS: ("check tensors less often", "guard the checks: if step % 100 == 0; the loss alone shows most faults"),
    PROFILER: ("profile a few steps only", _HOW["profiler"]),
}


@remedy(("debug_mode",), IDENTICAL, risk="low")
def without_debug_code(context: Context, cause: Cause) -> Proposal | None:
    """Leave out code that is made for debugging."""
    found = step_changes.without_debug_code(context)
    if found is None or found[0] in context.run.experiments.costly_settings():
        return None
    title, how = _CODE[found[0]]
    return Proposal(
        title=title,
        change=found[1],
        how=how,
        basis="share of the stack samples in it",
        memory_bytes=0,
    )


@remedy(("debug_mode",), NUMERICS, risk="low")
def nondeterministic(context: Context, cause: Cause) -> Proposal | None:
    """Let torch choose its fastest algorithms."""
    return _off(context, _NUMERIC)


def _off(context: Context, how: dict[str, str]) -> Proposal | None:
    costly = {name: one for name, one in context.run.experiments.costly_settings().items() if name in how}
    if not costly:
        return None
    name, most = next(iter(costly.items()))
    switched = [one for one in costly if one in _SWITCHED]
    return Proposal(
        title=f"switch off {context.run.experiments.setting_with_line(name)}",
        change=removed(context, most.gain),
        least=removed(context, max(most.low, 0.0)),
        how="; ".join(how[one] for one in costly),
        settings={"debugging_off": ",".join(switched)}
        if (switched := [one for one in costly if one in _SWITCHED])
        else None,
        basis=_BASIS,
        memory_bytes=0,
    )


@remedy(("hooks",), IDENTICAL, risk="medium")
def fewer_hooks(context: Context, cause: Cause) -> Proposal | None:
    """Run hooks every n-th step, or not at all."""
    experiments = context.run.experiments
    if experiments.hooks_share is None or not experiments.hooks:
        return None
    first = experiments.hooks[0]
    on_cpu = context.run.uses_gpu is False
    return Proposal(
        title=f"remove the hook {first.function} ({first.file}:{first.line}), or run it every {EVERY}th step",
        change=removed(context, (1 - 1 / EVERY) * (experiments.hooks_share if on_cpu else cause.share)),
        most=removed(context, experiments.hooks_share if on_cpu else cause.share),
        least=None if on_cpu else removed(context, 0.0),
        how=f"handle = module.register_forward_hook(…); handle.remove(); or return at once where step % {EVERY}",
        settings=calls_every(context.run.called("hooks"), EVERY),
        basis="measured time in the hooks' calls, in steps after the window",
        memory_bytes=0,
    )


@remedy(("garbage_collection",), IDENTICAL, risk="low")
def fewer_collections(context: Context, cause: Cause) -> Proposal | None:
    """Collect garbage seldom, and leave out what lives as long as the training."""
    part = context.run.experiments.collector_share
    if part is None:
        return None
    return Proposal(
        title="collect Python's garbage seldom",
        change=removed(context, 0.98 * part),
        least=removed(context, 0.7 * part),
        how="gc.freeze() before the loop; no gc.collect() in each step; gc.set_threshold(50_000, 20, 20)",
        settings={"collect_seldom": True},
        basis="measured time in the collector, in steps after the window; a fiftieth of it is assumed to stay",
        memory_bytes=None,
    )


@remedy(("too_many_threads", "too_few_threads", "crowded_machine"), NUMERICS, risk="low")
def threads(context: Context, cause: Cause) -> Proposal | None:
    """Compute with the number of threads that was fastest."""
    if cause.id == "crowded_machine" and (fewer := fewer_threads(context)) is not None:
        # It is no remedy where more is lost without these processes than gained beside them.
        lost = fewer.step_s / fewer.tried.unchanged_s if fewer.tried is not None else 0.0
        return _beside_others(context, fewer) if lost < context.model.now.step_s / fewer.step_s else None
    best = context.run.experiments.best_threads()
    if best is None:
        return None
    count, one = best
    return _with_threads(
        count,
        change=rethreaded(context, one.gain),
        least=rethreaded(context, max(one.low, 0.0)),
        basis=_BASIS,
    )


def _beside_others(context: Context, fewer: FewerThreads) -> Proposal:
    now = f"{duration(context.model.now.step_s)} in the window"
    if fewer.tried is not None:
        took = f"a step took {duration(fewer.step_s)} with {counted(fewer.count, 'thread')}"
        as_it_is = f"as it is {duration(fewer.tried.unchanged_s)}"
        basis = f"{_BASIS}: {took}, {as_it_is}, and {now}, where other processes used the cores"
    else:
        basis = (
            f"the traced operators, computed by {counted(fewer.count, 'thread')} on its part of the cores, would take "
            f"{duration(fewer.step_s)} a step, {now}, as {context.run.process.threads} threads wait for each other"
        )
    return _with_threads(
        fewer.count,
        change=shorter_by(context, fewer.part),
        least=shorter_by(context, fewer.least),
        basis=f"{basis}; without these processes less is gained",
    )


def _with_threads(count: int, change: Change, least: Change, basis: str) -> Proposal:
    return Proposal(
        title=f"compute with {counted(count, 'thread')}",
        change=change,
        least=least,
        how=f"torch.set_num_threads({count}) before the training, or OMP_NUM_THREADS={count}",
        settings={"threads": count},
        basis=f"{basis}; sums are added in another order",
        memory_bytes=0,
    )
