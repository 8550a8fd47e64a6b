"""Causes inside the step: computation that it could do without."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest
from flatout.measure.padding import Padding
from flatout.measure.repeated_weights import JoinedCalls, RepeatedWeight
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import calls_to_join, fewer_positions, joined_calls
from flatout.results import Cause, Evidence
from flatout.units import percent

_EVIDENCE = {
    "mask": "as a mask in the batch says",
    "lengths": "as lengths in the batch say",
    "tokens": "as one token fills the ends of rows and is nowhere else",
}


def _pads(context: Context, found: Cause) -> str:
    padding = context.run.padding
    if not isinstance(padding, Padding):
        return found.title
    like = "size" if padding.sides else "length"
    smaller = "smaller canvases" if padding.sides else "shorter batches"
    alike = f"of {padding.what}s of similar {like}"
    what = smaller if padding.fixed else "batches"
    what += f" {alike}" if padding.mixed else ""
    return (
        f"{percent(padding.share)} of the positions that the model computes are padding: "
        f"{what} would give {percent(found.share)} of the time back."
    )


@cause("training", sentence=_pads)
def padding_waste(context: Context) -> Found | Lacks | None:
    """The model computes positions at the ends of rows that hold no data."""
    padding = context.run.padding
    if context.fitted is None:
        return Lacks(NO_STEP)
    if padding is None or isinstance(padding, str):
        return None if padding is None else Lacks(padding)
    share = context.model.recovered(fewer_positions(context, padding.avoidable))
    if share < NOISE_SHARE:
        return None
    name = f" of {_in_batch(padding.tensor)}" if padding.tensor else ""
    because = _EVIDENCE.get(padding.evidence, "as the ends of rows say")
    if padding.sides:
        because = because.replace("lengths", "sizes")
    rows = sum(len(rows) for rows in padding.rows)
    mean = float(sum(lengths.sum() for lengths in padding.rows)) / rows
    return Found(
        title=_title(padding),
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"{percent(padding.share)} of the positions{name} are padding, {because}",
                {"padding": padding.share, "tensor": padding.tensor, "evidence": padding.evidence},
            ),
            Evidence(
                f"in {rows:,} {padding.what}s of {len(padding.rows):,} batches, a {padding.what} has "
                f"{mean:,.0f} positions, the {_largest(padding)} of a batch {padding.longest:,.0f}, "
                f"and {_whole(padding)} {float(padding.padded.mean()):,.0f} (means)",
                {"rows": rows, "mean": mean, "longest": padding.longest, "padded": float(padding.padded.mean())},
            ),
        ),
    )


def _in_batch(place: str) -> str:
    """A place in a batch, as code: "input_ids", "batch[0]", "batch[1].mask"."""
    first, dot, rest = place.partition(".")
    return f"batch[{first}]{dot}{rest}" if first.isdecimal() else place


def _title(padding: Padding) -> str:
    if padding.sides:
        canvas = "x".join(map(str, padding.sides))
        if padding.fixed:
            return f"samples lie on a canvas of {canvas}, larger than the largest of their batch"
        return "samples of different sizes share batches, and lie on a canvas for the largest"
    if padding.fixed:
        return "batches are padded to a fixed length, beyond their longest rows"
    return "rows of different lengths share batches, and are padded to the longest"


def _largest(padding: Padding) -> str:
    return "largest" if padding.sides else "longest"


def _whole(padding: Padding) -> str:
    return "the canvas" if padding.sides else "a batch"


def _calls_one_by_one(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: one call on all of them would save {percent(found.share)} of the time."


@cause(
    "training",
    # Many calls of few values are overhead, and what a larger batch would hide.
    hides=("overhead_bound", "small_batch", "too_many_threads", "too_few_threads"),
    sentence=_calls_one_by_one,
)
def unbatched_calls(context: Context) -> Found | Lacks | None:
    """Layers are called on one sample, patch or time step after the other, though no call needs another's result."""
    run = context.run
    weight, operators = run.repeated_weight, run.operators
    if context.fitted is None:
        return Lacks(NO_STEP)
    if weight is None:
        return None
    if isinstance(operators, str):
        return Lacks(operators)
    if operators.loop is not None and operators.loop.interrupted:
        return None
    share = context.model.recovered(joined_calls(context, weight)[0])
    if share < NOISE_SHARE:
        return None
    depend = (
        "none of which depends on another one"
        if weight.chain == 1
        else f"of which at most {weight.chain:,} depend on each other"
    )
    name = weight.name or "a weight"
    calls = calls_to_join(context, weight)
    evidence = [
        Evidence(
            f"{name} ({'x'.join(map(str, weight.shape))}) takes part in {weight.uses:,} products of a backward pass's "
            f"graph, {depend}",
            {"uses": weight.uses, "chain": weight.chain, "part": weight.part},
        )
    ]
    module = weight.module
    if isinstance(module, JoinedCalls):
        text = (
            f"measured after the window, one call of the module with {module.calls} inputs takes "
            f"{percent(module.part)} of the time of {module.calls} calls ({percent(module.low)} to "
            f"{percent(module.high)}), both passes"
        )
        evidence.append(Evidence(text, {"calls": module.calls, "part": module.part}))
    elif weight.joined is not None:
        text = f"one product of all inputs takes {percent(weight.joined)} of the time of one after the other here"
        evidence.append(Evidence(text, {"joined": weight.joined}))
    if operators.loop is not None:
        part = operators.loop.share
        text = f"loops of {calls:,.0f} such calls take {percent(part)} of a traced step, with what else is done in them"
        evidence.append(Evidence(text, {"calls": calls, "share": part}))
    evidence += hottest(run.lines("forward"), 2)
    return Found(
        title=f"layers are called {calls:,.0f} times in turn, on inputs that could be one batch",
        share=share,
        confidence=_confidence(weight),
        evidence=tuple(evidence),
    )


def _confidence(weight: RepeatedWeight) -> float:
    if isinstance(weight.module, JoinedCalls):
        return 0.9
    return 0.6 if weight.joined is None else 0.8
