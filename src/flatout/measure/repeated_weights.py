"""A weight that a step uses in many products that do not depend on each other, as steps after the window show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatout.record import ProcessRecord


@dataclass(frozen=True)
class JoinedCalls:
    """Both passes of the module that the loop calls, with the inputs of several calls.

    Attributes:
        calls: of them.
        call_s: seconds of one of several in turn, in the fastest round.
        part: time with all inputs in one call over that of one after the other, the fastest rounds of both.
        low: the least of the pairs.
        high: the most of them.
    """

    calls: int
    call_s: float
    part: float
    low: float
    high: float

    def of(self, calls: float, part: float) -> float:
        """The part for another number of calls: what a call costs beside its samples is paid once for all of them.

        Args:
            calls: that one replaces.
            part: ``part``, ``low`` or ``high``.
        """
        paid_once = min((1.0 - part) / (1.0 - 1.0 / self.calls), 1.0)
        return 1.0 - paid_once * (1.0 - 1.0 / calls)


@dataclass(frozen=True)
class RepeatedWeight:
    """The weight that takes most of them.

    Attributes:
        name: its module and parameter; empty: not known.
        shape: its sizes.
        uses: products with it in a backward pass's graph.
        chain: the most of them that depend on each other.
        part: of all products of the step, those of layers that are called as often.
        joined: time of one product of all inputs over that of one after the other; None: not measured.
        module: the same of the whole module around it; text: why that was not measured.
    """

    name: str
    shape: tuple[int, ...]
    uses: int
    chain: int
    part: float
    joined: float | None
    module: JoinedCalls | str = "no module was called as often"

    @property
    def calls(self) -> float:
        """Products that one could replace."""
        return self.uses / self.chain


def read_repeated_weight(process: ProcessRecord) -> RepeatedWeight | None:
    """The repeated weight of the training; None: there is none, or nobody looked."""
    seen = process.info.get("repeated_weight")
    if seen is None:
        return None
    apart_s, joined_s = seen.get("apart_s"), seen.get("joined_s")
    return RepeatedWeight(
        name=seen.get("name") or "",
        shape=tuple(seen.get("shape") or ()),
        uses=seen["uses"],
        chain=seen["chain"],
        part=seen["part"],
        joined=min(joined_s / apart_s, 1.0) if apart_s and joined_s is not None else None,
        **({"module": _joined_calls(seen["module"])} if seen.get("module") else {}),
    )


def _joined_calls(seen: Mapping[str, Any]) -> JoinedCalls | str:
    apart, joined = seen.get("apart_ns") or [], seen.get("joined_ns") or []
    calls = seen.get("calls")
    if not calls or not apart or not joined:
        return str(seen.get("skipped") or "it was not timed")
    # One call takes as long as any: less was an interruption of the others.
    parts = [min(max(one / many, 1.0 / calls), 1.0) for one, many in zip(joined, apart, strict=False)]
    part = min(max(min(joined) / min(apart), 1.0 / calls), 1.0)
    return JoinedCalls(calls, min(apart) / calls / 1e9, part, min(*parts, part), max(*parts, part))
