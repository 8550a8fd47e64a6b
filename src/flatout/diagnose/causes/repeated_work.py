"""Causes inside the step: operators that run again with the inputs that they had before."""

from __future__ import annotations

from pathlib import PurePath

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import place
from flatout.measure.repeated_work import RepeatedLine, RepeatedWork
from flatout.predict.context import Context
from flatout.predict.memory_room import memory_room
from flatout.predict.step_changes import without_repeated_work
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent, size

_LARGE_PART = 0.35  # of another cause's share
_FULL = 0.6  # of the memory: the activations of a whole step may not fit into the rest
_LEAST = 0.05  # of the time: constants that are made again take a little in many trainings


def _computes_again(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: computing it once would save {percent(found.share)} of the time."


@cause(
    "training",
    # What is computed again is many operators, or costs the same whatever the batch, such as a whole graph's features.
    hides=("overhead_bound", "small_batch"),
    hides_from=_LARGE_PART,
    sentence=_computes_again,
)
def repeated_work(context: Context) -> Found | Lacks | None:
    """A step runs operators again with the inputs that they had before."""
    work = context.run.repeated_work
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(work, str):
        return Lacks(work)
    if work is None:
        return None if context.run.experiments.steps else Lacks(context.run.experiments.because)
    if not work.lines:
        return None
    share = context.model.recovered(without_repeated_work(context, work.with_backward))
    if share < _LEAST:
        return None
    operators = list(dict.fromkeys(line.operator for line in work.lines))[:2]
    return Found(
        title=f"each step computes the same again: {' and '.join(operators)} of the same values",
        share=share,
        confidence=0.8 if work.first is None else 0.5,
        evidence=(
            Evidence(
                f"in {_seen(work)} after the window, operators that had run with the same inputs before took "
                f"{percent(work.part)} of the time of all, and with the backward passes that follow them "
                f"{percent(work.with_backward)}",
                {"part": work.part, "with_backward": work.with_backward},
            ),
            *(_again(line) for line in work.lines[:3]),
        ),
    )


def _only_reads(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}, not for gradients: {percent(found.share)} of the time."


@cause("training", hides=("overhead_bound", "small_batch"), hides_from=_LARGE_PART, sentence=_only_reads)
def reported_passes(context: Context) -> Found | Lacks | None:
    """A step computes passes only for numbers that the program reads, such as a test loss."""
    values, looked = context.run.read_values, context.run.repeated_work
    if context.fitted is None:
        return Lacks(NO_STEP)
    if values is None:
        return Lacks(looked) if isinstance(looked, str) else None
    share = context.model.recovered(without_repeated_work(context, values.part))
    if share < _LEAST:
        return None
    return Found(
        title="each step computes passes only for numbers that are read",
        share=share,
        confidence=0.7,  # what the program does with the numbers is not known
        evidence=(
            Evidence(
                f"in one step after the window, {percent(values.part)} of the time of all operators was for numbers "
                "that are read, and of which no gradient reaches a weight",
                {"part": values.part},
            ),
            *(
                Evidence(
                    f"{duration(line.seconds)} for what {place(line)}, {line.function} reads",
                    {"file": line.file, "line": line.line, "seconds": line.seconds},
                )
                for line in values.lines[:3]
            ),
        ),
    )


def _checkpoints(context: Context, found: Cause) -> str:
    return f"Activation checkpointing computes again what memory has room for: {percent(found.share)} of the time."


@cause("training", sentence=_checkpoints)
def activation_checkpointing(context: Context) -> Found | Lacks | None:
    """Activations are computed again in the backward pass, though memory has room for them."""
    work = context.run.repeated_work
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(work, str):
        return Lacks(work)
    if work is None or not work.on_purpose:
        return None
    share = context.model.recovered(without_repeated_work(context, work.on_purpose))
    room = memory_room(context.run)
    if share < _LEAST or (room is not None and room.used_share > _FULL):
        return None
    where = "the GPU's" if context.run.uses_gpu else "the machine's"
    return Found(
        title="activations are computed again in the backward pass",
        share=share,
        confidence=0.5 if room is None or work.first is not None else 0.8,
        evidence=(
            Evidence(
                f"in {_seen(work)} after the window, activation checkpointing computed again what took "
                f"{percent(work.on_purpose)} of the time of all operators",
                {"on_purpose": work.on_purpose},
            ),
            Evidence(
                f"{percent(room.used_share)} of {where} memory is in use: {size(room.free_bytes)} are free",
                {"used_share": room.used_share, "free_bytes": room.free_bytes},
            )
            if room is not None
            else Evidence("whether memory has room for the activations is not known"),
        ),
    )


def _seen(work: RepeatedWork) -> str:
    return "one step" if work.first is None else f"the first {work.first:,} operators of one step"


def _again(line: RepeatedLine) -> Evidence:
    place = f" ({PurePath(line.file).name}:{line.line}, {line.function})" if line.file else ""
    text = f"{line.operator}: {counted(line.calls, 'call')} more, {duration(line.seconds)}{place}"
    values: dict[str, float | int | str] = {"operator": line.operator, "calls": line.calls, "seconds": line.seconds}
    return Evidence(text, values | {"file": line.file, "line": line.line} if line.file else values)


def _splits(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: products with each of them once would save {percent(found.share)} of the time."


@cause(
    "training",
    # Rows that repeat are large tensors of which little is new, many operators, and what is computed again.
    hides=("repeated_work", "overhead_bound", "page_faults", "small_batch", "too_many_threads", "too_few_threads"),
    hides_from=_LARGE_PART,
    sentence=_splits,
)
def repeated_rows(context: Context) -> Found | Lacks | None:
    """Layers multiply rows that repeat, such as one state put beside each of many inputs."""
    rows, looked = context.run.repeated_rows, context.run.repeated_work
    if context.fitted is None:
        return Lacks(NO_STEP)
    if rows is None:
        return Lacks(looked) if isinstance(looked, str) else None
    share = context.model.recovered(without_repeated_work(context, rows.part))
    if share < _LEAST:
        return None
    products = counted(rows.products, "product")
    return Found(
        title="layers multiply rows that repeat, or that they have multiplied before",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"in one step after the window, the needless part of {products} and of what puts their rows together "
                f"took {percent(rows.part)} of the time of all operators, with the backward passes; a row's values "
                f"are there up to {rows.times:,.0f} times",
                {"products": rows.products, "part": rows.part, "times": rows.times},
            ),
            *(
                Evidence(
                    f"{duration(line.seconds)} in products of {PurePath(line.file).name}:{line.line}, {line.function}",
                    {"file": line.file, "line": line.line, "seconds": line.seconds},
                )
                for line in rows.lines[:3]
            ),
        ),
    )
