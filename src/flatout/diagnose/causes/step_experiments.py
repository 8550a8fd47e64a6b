"""Causes inside the step itself, which steps after the window have shown."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import place
from flatout.measure.debug_code import ASSERTIONS, CHECKS, PROFILER
from flatout.measure.experiments import DEBUGGING, Tried
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import removed, rethreaded, without_debug_code
from flatout.probe.contract import KEPT_GRADIENTS, THREADS, USED_GRADIENTS
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, of_cores, percent

# Threads of one step wait for each other: with as many as there are cores, a neighbour on one core delays all of them.
_NEIGHBOURS_CORES = 0.25


_CODE = {
    ASSERTIONS: "assertions in the training code",
    CHECKS: "checks of tensors for NaN or infinite values",
    PROFILER: "torch's profiler",
}


def _is_debugged(context: Context, found: Cause) -> str:
    run = context.run
    met = without_debug_code(context)
    if met is not None and context.model.recovered(met[1]) >= found.share:
        text = f"{_CODE[met[0]]} ({place(run.debug_code[met[0]].line)})"
        verb = "takes" if met[0] == PROFILER else "take"
    else:
        text, verb = run.experiments.setting_with_line(next(iter(run.experiments.costly_settings()))), "takes"
    return f"{text[:1].upper()}{text[1:]} {verb} {percent(found.share)} of the time."


@cause(
    "training",
    # It slows the user's own code, torch's compiler and small operators more than the rest.
    hides=(
        "main_process_work",
        "recompilation",
        "graph_breaks",
        "overhead_bound",
        "small_batch",
        "hooks",
        "garbage_collection",
        "too_many_threads",
        "too_few_threads",
    ),
    sentence=_is_debugged,
)
def debug_mode(context: Context) -> Found | Lacks | None:
    """A setting made for debugging is on in every step."""
    run = context.run
    if context.fitted is None:
        return Lacks(NO_STEP)
    unknown = [name for name in run.experiments.debugging if name in DEBUGGING and name not in run.experiments.tried]
    costly = run.experiments.costly_settings()
    # Each was left out alone: together they cost at least as much as the most expensive one.
    most = max((one.gain for one in costly.values()), default=None)
    share = context.model.recovered(removed(context, most)) if most is not None else 0.0
    met = without_debug_code(context)
    seen = context.model.recovered(met[1]) if met is not None else 0.0
    if max(share, seen) < NOISE_SHARE:
        if unknown:
            text = run.experiments.setting_with_line(unknown[0])
            return Lacks(f"{text} is on, and its cost was not measured: {run.experiments.because}")
        return None
    sampled: tuple[Evidence, ...] = ()
    if met is not None and seen >= NOISE_SHARE:
        code = run.debug_code[met[0]]
        text = f"{percent(code.share)} of the stack samples are in {_CODE[met[0]]}, most often at {place(code.line)}"
        sampled = (Evidence(text, {"share": code.share, "file": code.line.file, "line": code.line.line}),)
    return Found(
        title=_CODE[met[0]] if met is not None and seen >= share else f"{DEBUGGING[next(iter(costly))]} is on",
        share=max(share, seen),
        confidence=0.9 if share >= seen else 0.8,
        evidence=(
            *(
                _measured(f"{run.experiments.setting_with_line(name)} is on", "without it", one)
                for name, one in costly.items()
            ),
            *sampled,
        ),
    )


def _measured(what: str, changed: str, one: Tried) -> Evidence:
    blocks = f"{counted(one.blocks, 'block')} of {counted(one.steps, 'step')}"
    text = f"{what}: {blocks} {changed} took {duration(one.changed_s)} a step, as it is {duration(one.unchanged_s)}"
    return Evidence(text, {"changed_s": one.changed_s, "unchanged_s": one.unchanged_s, "gain": one.gain})


def _runs_hooks(context: Context, found: Cause) -> str:
    first = context.run.experiments.hooks[0]
    return f"Hooks on the model take {percent(found.share)} of the time ({place(first)} {first.function})."


@cause("training", sentence=_runs_hooks)
def hooks(context: Context) -> Found | Lacks | None:
    """The user's hooks on modules and tensors take a large part of each step."""
    run = context.run
    if context.fitted is None:
        return Lacks(NO_STEP)
    part = run.experiments.hooks_share
    if part is None:
        return None if run.experiments.steps else Lacks(run.experiments.because)
    share = context.model.recovered(removed(context, part))
    if run.uses_gpu is not False:
        busy = run.usage.device_busy_share
        if busy is None:
            return Lacks("the GPU's busy time was not measured: what the host does meanwhile may cost nothing")
        share = min(share, 1.0 - busy)
    if share < NOISE_SHARE:
        return None
    return Found(
        title="hooks on modules or tensors take a part of each step",
        share=share,
        confidence=0.9 if run.uses_gpu is False else 0.6,
        evidence=(
            Evidence(f"their calls take {percent(part)} of a step", {"hooks": part}),
            *(
                Evidence(
                    f"{place(line)} {line.function}: {duration(line.seconds)} a step",
                    {"file": line.file, "line": line.line, "seconds": line.seconds},
                )
                for line in run.experiments.hooks[:3]
            ),
        ),
    )


def _collects(context: Context, found: Cause) -> str:
    return f"Python's garbage collector takes {percent(found.share)} of the time."


@cause(
    "training",
    hides=("main_process_work",),  # calls of gc.collect() are code of the loop too: then most of it
    hides_from=DOMINANT_SHARE,
    sentence=_collects,
)
def garbage_collection(context: Context) -> Found | None:
    """Python's garbage collector runs often, or has many objects to go through."""
    run = context.run
    part = run.experiments.collector_share
    if context.fitted is None or part is None:
        return None
    share = context.model.recovered(removed(context, part))
    if share < NOISE_SHARE:
        return None
    each = run.experiments.collections
    return Found(
        title="Python's garbage collector takes a part of each step",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"{percent(part)} of the time of {counted(run.experiments.steps, 'step')} after the window, "
                f"{each:.2g} collections a step",
                {"collector": part, "collections": each},
            ),
        ),
    )


_GRADIENTS = {
    USED_GRADIENTS: "gradients that no optimizer uses",
    KEPT_GRADIENTS: "gradients that are set to zero before they are used",
}


def tried_in_vain(run: MeasuredRun) -> list[Evidence]:
    """What was changed after the window without making the steps faster."""
    found = []
    for name, one in run.experiments.tried.items():
        if one.proven and one.gain >= NOISE_SHARE:
            continue
        count = name.removeprefix(THREADS)
        threads = f"with {count} thread{'s' if count != '1' else ''}"
        left_out = DEBUGGING | _GRADIENTS
        what = f"without {left_out[name]}" if name in left_out else threads
        text = f"{what}: {duration(one.changed_s)} a step, as it is {duration(one.unchanged_s)}"
        found.append(Evidence(text, {"tried": what, "changed_s": one.changed_s, "unchanged_s": one.unchanged_s}))
    return found


def _takes_turns(context: Context, found: Cause) -> str:
    best = context.run.experiments.best_threads()
    other = counted(best[0], "thread") if best is not None else "another number"
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: {other} would give {percent(found.share)} of the time back."


@cause("training", sentence=_takes_turns)
def too_many_threads(context: Context) -> Found | Lacks | None:
    """The training process computes faster with fewer intra-op threads."""
    return _threads(context, fewer=True)


@cause("training", sentence=_takes_turns)
def too_few_threads(context: Context) -> Found | Lacks | None:
    """The training process computes faster with more intra-op threads."""
    return _threads(context, fewer=False)


def _threads(context: Context, fewer: bool) -> Found | Lacks | None:
    run = context.run
    best, now = run.experiments.best_threads(), run.process.threads
    if context.fitted is None or best is None or now is None or (best[0] < now) is not fewer:
        return None
    count, one = best
    share = context.model.recovered(rethreaded(context, one.gain))
    if share < NOISE_SHARE:
        return None
    others = run.usage.other_cores or 0.0
    if fewer and run.cores is not None and now <= run.cores and others >= _NEIGHBOURS_CORES:
        return Lacks(
            f"other processes used {of_cores(others)}: that {counted(count, 'thread')} "
            f"{'was' if count == 1 else 'were'} faster may be due to them"
        )
    cores = f" on {run.cores:.3g} usable cores" if run.cores is not None else ""
    return Found(
        title=f"the model computes with {counted(now, 'thread')}{cores}, too {'many' if fewer else 'few'}",
        share=share,
        confidence=0.8,
        evidence=(_measured(f"torch uses {counted(now, 'thread')}", f"with {count}", one),),
    )
