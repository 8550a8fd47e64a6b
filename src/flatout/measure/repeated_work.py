"""What a step computes again with the same inputs, as one step after the window shows it."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.record import ProcessRecord

COMPUTING = ("forward", "loss", "backward", "optimizer")  # accounts that operators take


@dataclass(frozen=True)
class RepeatedLine:
    """An operator that a line of the user's calls again.

    Attributes:
        file: of the line; empty: no line of the user's was on the stack.
        reason: "parametrization" or "gradient", if torch calls the operator for one; or empty.
        seconds: of the calls after the first.
        calls: of them.
    """

    file: str
    line: int
    function: str
    reason: str
    operator: str
    seconds: float
    calls: int


@dataclass(frozen=True)
class RepeatedWork:
    """The operators of one step that had run with the same inputs before.

    Attributes:
        part: of the time of all operators that such ones take, 0..1.
        with_backward: the same with the backward passes that follow them.
        lines: those with most of it.
        first: operators that were seen of a step that was too long; None: it was seen as a whole.
        on_purpose: part of the time of all operators that activation checkpointing computes again, 0..1.
    """

    part: float
    with_backward: float
    lines: tuple[RepeatedLine, ...]
    first: int | None = None
    on_purpose: float = 0.0


def read_repeated_work(process: ProcessRecord) -> RepeatedWork | str | None:
    """What the step showed; text: why none was looked at; None: there was none."""
    seen = process.info.get("repeated_work") or {}
    if seen.get("skipped"):
        return str(seen["skipped"])
    if not seen.get("ns"):
        return None
    again, behind = seen.get("again_ns", 0) / seen["ns"], seen.get("behind_ns", 0) / seen["ns"]
    return RepeatedWork(
        part=min(again, 1.0),
        with_backward=min(again + behind, 1.0),
        lines=tuple(
            RepeatedLine(file, line, function, reason, operator, ns / 1e9, calls)
            for file, line, function, reason, operator, ns, calls in seen.get("lines") or []
        ),
        first=seen.get("operators") if seen.get("cut") else None,
        on_purpose=min(seen.get("on_purpose_ns", 0) / seen["ns"], 1.0),
    )
