"""Causes in compiled code: functions that are compiled again and again, and graphs in pieces."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import place
from flatout.measure.compiling import Break, Recompiled
from flatout.measure.thresholds import MATERIAL_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import shorter_step
from flatout.results import Cause, Evidence, Line
from flatout.units import counted, duration, percent

_MOST_SHOWN = 3  # functions, or lines
_LIMIT = "torch's limit was reached, so calls that fit none of its compiled versions run uncompiled"


def _compiles_again(context: Context, found: Cause) -> str:
    compiling = context.run.compiling
    if compiling is None or isinstance(compiling, str) or not compiling.functions:
        return found.title
    first = compiling.functions[0]
    why = f": {first.reasons[0]}" if first.reasons else ""
    return f"torch.compile compiles {_named(first.line)} again, which takes {percent(found.share)} of the time{why}."


@cause("training", sentence=_compiles_again)
def recompilation(context: Context) -> Found | Lacks | None:
    """torch.compile compiles the same functions again during the training, beyond the usual warm-up."""
    run, compiling = context.run, context.run.compiling
    if compiling is None:
        return None
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(compiling, str):
        return Lacks(compiling)
    if not compiling.goes_on:
        return None
    removed_s = compiling.again_s / context.fitted.batches
    share = context.fitted.recovered(shorter_step(removed_s))
    limited = [one for one in compiling.functions if one.limited]
    if share < NOISE_SHARE:
        if limited:
            return Lacks(f"{_named(limited[0].line)}: {_LIMIT}; what that costs was not measured")
        return None
    times = sum(one.times for one in compiling.functions)
    first = compiling.functions[0]
    return Found(
        title=f"torch.compile compiles {first.line.function} again and again",
        share=share,
        confidence=0.9,
        evidence=(
            Evidence(
                f"{counted(times, 'compilation')} of functions that were compiled before take "
                f"{duration(compiling.again_s)} of the {duration(run.ledger.window_s)} measured",
                {"compilations": times, "again_s": compiling.again_s},
            ),
            *(_recompiled(one) for one in compiling.functions[:_MOST_SHOWN]),
        ),
    )


def _recompiled(one: Recompiled) -> Evidence:
    text = f"{_named(one.line)}: {counted(one.times, 'time')}, {duration(one.line.seconds)}"
    text += "".join(f"; failed guard: {reason}" for reason in one.reasons[:1])
    if one.limited:
        text += f"; {_LIMIT}"
    values: dict[str, float | int | str] = {"file": one.line.file, "line": one.line.line, "times": one.times}
    return Evidence(text, values | {"limited": int(one.limited), "reason": one.reasons[0] if one.reasons else ""})


def _is_broken(context: Context, found: Cause) -> str:
    compiling = context.run.compiling
    if compiling is None or isinstance(compiling, str) or not compiling.breaks:
        return found.title
    first = compiling.breaks[0]
    return (
        f"The compiled model is in pieces, and {percent(found.share)} of the time passes between them: "
        f"{_described(first)}."
    )


@cause(
    "training",
    hides=("overhead_bound", "small_batch"),  # the time between the pieces is overhead around operators, too
    sentence=_is_broken,
)
def graph_breaks(context: Context) -> Found | Lacks | None:
    """Compiled graphs break, and guards and uncompiled Python run between the pieces."""
    compiling = context.run.compiling
    if compiling is None:
        return None
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(compiling, str):
        return Lacks(compiling)
    if not compiling.breaks:
        return None
    breaks, calls = sum(one.count for one in compiling.breaks), compiling.calls
    if isinstance(calls, str):
        first = _described(compiling.breaks[0])
        return Lacks(
            f"the compiled functions hold {counted(breaks, 'graph break')} ({first}): not measured, as {calls}"
        )
    # The traced steps may have been disturbed more than those of the window: only the part counts.
    between_s = calls.between_share * context.run.seconds("forward") / context.fitted.batches
    operators = context.run.operators
    # One graph has to be called in any case.
    extra = 1.0 - 1.0 / max(calls.count, 1.0)
    in_calls_s = 0.0 if isinstance(operators, str) else extra * operators.in_graph_calls_s
    removed_s = between_s + in_calls_s
    share = context.fitted.recovered(shorter_step(removed_s))
    if context.run.uses_gpu is not False:
        busy = context.run.usage.device_busy_share
        if busy is None:
            return Lacks("the GPU's busy time was not measured: what the host does meanwhile may cost nothing")
        share = min(share, 1.0 - busy)
    # A break or two cannot always be avoided, and what runs there may have to run in any case.
    if share < MATERIAL_SHARE:
        return None
    return Found(
        title="compiled graphs break into pieces",
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"the forward pass calls {calls.count:.3g} compiled graphs a step; "
                f"{percent(calls.between_share)} of it passes between them, in guards and uncompiled Python",
                {"graphs": calls.count, "between_s": calls.between_s, "between_share": calls.between_share},
            ),
            *(
                [Evidence(f"calling them takes {duration(in_calls_s)} a step", {"in_calls_s": in_calls_s})]
                if in_calls_s > 0
                else []
            ),
            *(
                Evidence(
                    f"the graph breaks at {_described(one)}",
                    {"file": one.line.file, "line": one.line.line, "breaks": one.count, "reason": one.reason},
                )
                for one in compiling.breaks[:_MOST_SHOWN]
            ),
            Evidence("what the compiler would gain from larger graphs is not measured"),
        ),
    )


def _described(one: Break) -> str:
    what = one.line.source.strip() or one.line.function
    return f"{place(one.line)} {what}" + (f" ({one.reason})" if one.reason else "")


def _named(line: Line) -> str:
    return f"{line.function} ({place(line)})"
