"""What slows the step itself, as steps after the window have shown."""

from __future__ import annotations

import math

from flatout.measure.debug_code import ASSERTIONS, CHECKS, PROFILER
from flatout.predict import step_changes
from flatout.predict.context import Context
from flatout.predict.step_changes import removed, rethreaded
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.remedies.reporting import EVERY, calls_every
from flatout.results import Cause
from flatout.units import counted, duration, of_cores

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
# No part of a step that more or fewer threads compute.
_BESIDE_STEPS = ("batch_wait", "epoch_boundary", "validation", "checkpoint", "logging", "host_other")
_MOST_OF_STEP = 0.96  # that fewer threads may save: one thread beside a busy machine gave up to 24x
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


# On a crowded machine, all threads of an operation wait for the one that has no core.
@remedy(("too_many_threads", "too_few_threads", "crowded_machine"), NUMERICS, risk="low")
def threads(context: Context, cause: Cause) -> Proposal | None:
    """Compute with the number of threads that was fastest."""
    best = context.run.experiments.best_threads()
    if best is None:
        return _as_cores_are_left(context, cause)
    count, one = best
    crowded = ", while other processes used the cores: without them less is gained" * (cause.id == "crowded_machine")
    return Proposal(
        title=f"compute with {counted(count, 'thread')}",
        change=rethreaded(context, one.gain),
        least=rethreaded(context, max(one.low, 0.0)),
        how=f"torch.set_num_threads({count}) before the training, or OMP_NUM_THREADS={count}",
        settings={"threads": count},
        basis=f"{_BASIS}{crowded}; sums are added in another order",
        memory_bytes=0,
    )


def _as_cores_are_left(context: Context, cause: Cause) -> Proposal | None:
    """As many threads as there are cores that other processes leave, where the steps had no time to try it."""
    run, crowding = context.run, context.run.usage.crowding
    now = run.process.threads
    if cause.id != "crowded_machine" or crowding is None or run.cores is None or not now or run.uses_gpu is not False:
        return None
    left = max(run.cores - crowding.outside_cores, 0.0)
    count = max(round(left), 1)
    if count >= now:
        return None
    steps = run.ledger.steps
    # An operation goes on where each of its threads has a core. At most, all steps are as short as the shortest one.
    waited = 1.0 - (1.0 - cause.share) ** now
    own_s = run.ledger.window_s - run.seconds(*_BESIDE_STEPS)
    disturbed = 1.0 - steps.min_s * steps.count / own_s if own_s > 0 else 0.0
    most = min(max(waited, disturbed), _MOST_OF_STEP)
    return Proposal(
        title=f"compute with {counted(count, 'thread')}",
        change=rethreaded(context, 1.0 - math.sqrt(1.0 - most)),
        least=rethreaded(context, 0.0),
        most=rethreaded(context, most),
        how=f"torch.set_num_threads({count}) before the training, or OMP_NUM_THREADS={count}",
        settings={"threads": count},
        basis=f"other processes leave {of_cores(left)} to {now} threads, which wait for each other: a step takes "
        f"{duration(run.ledger.window_s / max(steps.count, 1))}, the shortest {duration(steps.min_s)}; the middle "
        "between nothing and that is predicted, only a trial can show it; sums are added in another order",
        memory_bytes=0,
    )
