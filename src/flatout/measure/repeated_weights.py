"""A weight that a step uses in many products that do not depend on each other, as steps after the window show it."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.record import ProcessRecord


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
    """

    name: str
    shape: tuple[int, ...]
    uses: int
    chain: int
    part: float
    joined: float | None

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
    )
