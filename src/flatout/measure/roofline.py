"""How near a step comes to what its device gives: the roofline model, with rates measured on this very device.

An operator takes at least ``max(FLOPs / FLOP/s, bytes / bytes/s)`` (Williams, Waterman and Patterson, "Roofline",
Communications of the ACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flatout.measure.costly_operators import CostlyOperator
from flatout.measure.operator_costs import Cost
from flatout.units import percent

# Of the time in kernels. The rest is assumed to run as the known part does.
LEAST_KNOWN = 0.7
# Threads that have a core all the time use it all the time: less means that something else used the cores.
_UNDISTURBED = 0.75
# A training thread that waits this much for a core is slowed by others, not by its own operators. Less than that
# delays a part of the calls only, whose medians count.
_MOST_QUEUED = 0.2
# Products that are this much faster than the reference say that the reference was disturbed.
_FASTER = 1.25
_SHOWN, _NAMED = 10, 3
NOT_MEASURED = "what this device gives was not measured after the window"


@dataclass(frozen=True)
class Ceilings:
    """The rates that a device gives.

    Attributes:
        threads: that computed the reference; 0: not known.
        product_flops: floating-point operations a second in a large matrix product, by type.
        convolution_flops: the same in a convolution.
        memory: pairs of bytes in memory and bytes a second, read and written.
    """

    threads: int
    product_flops: Mapping[str, float]
    convolution_flops: Mapping[str, float]
    memory: tuple[tuple[int, float], ...]

    def flops(self, cost: Cost) -> float | None:
        """Operations a second for products of this kind; None: not measured in their type."""
        of_product = self.product_flops.get(cost.dtype)
        return self.convolution_flops.get(cost.dtype, of_product) if cost.convolution else of_product

    def bytes_per_s(self, size: float) -> float:
        """Bytes a second where this many are read and written: caches give more to small tensors."""
        # What is written is often what was read: half as much memory as bytes that pass.
        near = min(self.memory, key=lambda one: abs(math.log(one[0]) - math.log(max(size / 2, 1.0))))
        return near[1]

    def possible_s(self, cost: Cost) -> float | None:
        """The least time of an operator in seconds; None: not known."""
        rate = self.flops(cost) if cost.flops else math.inf
        if rate is None:
            return None
        return max(cost.flops / rate, cost.bytes / self.bytes_per_s(cost.bytes) if cost.bytes else 0.0)


@dataclass(frozen=True)
class Roofline:
    """A step beside the least time that its operators take on this device.

    Attributes:
        achieved: the least time of a step as a share of its time, what passes around kernels included; 0..1.
        known: share of the time in kernels that belongs to operators of known cost.
        known_s: seconds of a step in them.
        possible_s: the least time of them, seconds a step.
        ceilings: of the device.
        lost: of the kind of operator that loses most, the one that loses most; None: more is lost around the kernels.
        lost_share: of what is lost, what that kind (or what is around the kernels) loses, 0..1.
        unknown: names of the operators whose cost is not known, the most time first.
    """

    achieved: float
    known: float
    known_s: float
    possible_s: float
    ceilings: Ceilings
    lost: CostlyOperator | None
    lost_share: float
    unknown: tuple[str, ...]

    @property
    def left(self) -> float:
        """The factor on the speed of a step that is left at the most, with the same operators."""
        return 1.0 / self.achieved if self.achieved > 0 else math.inf


def read_ceilings(info: Mapping[str, Any], cores: float | None) -> Ceilings | str:
    """The rates that the training process measured; or why there are none to rely on.

    Args:
        info: of the process.
        cores: that it may use; None: not known.
    """
    found = info.get("ceilings")
    if not found:
        return NOT_MEASURED
    if found.get("failed"):
        return f"{NOT_MEASURED} ({found['failed']})"
    memory = tuple((int(size), float(rate)) for size, rate in found.get("memory_bps") or ())
    if not memory:
        return NOT_MEASURED
    threads, used = int(found.get("threads") or 0), found.get("cores")
    expected = min(threads, cores) if cores is not None else threads
    if found.get("device") == "cpu" and used is not None and used < _UNDISTURBED * expected:
        return "something else used the cores while the rates of this device were measured"
    return Ceilings(threads, found.get("product_flops") or {}, found.get("convolution_flops") or {}, memory)


def possible(operators: Sequence[CostlyOperator], ceilings: Ceilings | str) -> tuple[CostlyOperator, ...]:
    """The operators with the least time that each takes, where it is known."""
    if isinstance(ceilings, str):
        return tuple(operators)
    return tuple(replace(one, possible_s=_possible_s(one, ceilings)) for one in operators)


def _possible_s(operator: CostlyOperator, ceilings: Ceilings) -> float | None:
    each_s = ceilings.possible_s(operator.cost) if operator.cost is not None else None
    return None if each_s is None else operator.calls * each_s


def measure_roofline(
    operators: Sequence[CostlyOperator], ceilings: Ceilings | str, overhead_s: float, queued: float
) -> Roofline | str:
    """Compare a step with what the device gives; or say why that is not known.

    Args:
        operators: all of a step, with their least times.
        ceilings: rates of the device, or why they are not known.
        overhead_s: seconds of a step that pass around kernels.
        queued: share of the time in which the training thread waits for a core.
    """
    if isinstance(ceilings, str):
        return ceilings
    kernels_s = sum(one.seconds for one in operators)
    if kernels_s <= 0:
        return "no time in kernels is in the kernel trace"
    known = [one for one in operators if one.possible_s is not None]
    unknown = [one for one in operators if one.possible_s is None]
    known_s = sum(one.seconds for one in known)
    names = tuple(dict.fromkeys(one.short_name for one in unknown))
    if known_s < LEAST_KNOWN * kernels_s:
        return (
            f"the cost of operators that take {percent(1 - known_s / kernels_s)} of the time in kernels "
            f"is not known ({', '.join(names[:_NAMED])})"
        )
    if queued >= _MOST_QUEUED:
        return f"the training thread waits {percent(queued)} of the time for a core"
    arithmetic_s = {one: _arithmetic_s(one, ceilings) for one in known}
    products_s = sum(one.seconds for one, least_s in arithmetic_s.items() if least_s > 0)
    if sum(arithmetic_s.values()) > _FASTER * products_s > 0:
        return "the products of a step were faster than the reference, so something disturbed the reference"
    # What comes out of a cache, or needs fewer operations than are counted, is faster than its ceiling.
    possible_s = sum(min(one.possible_s or 0.0, one.seconds) for one in known)
    step_s = kernels_s + overhead_s
    lost_s: dict[str, float] = {}
    for one in known:
        lost_s[one.short_name] = lost_s.get(one.short_name, 0.0) + _lost_s(one)
    name = max(lost_s, key=lambda name: lost_s[name])
    most = max((one for one in known if one.short_name == name), key=_lost_s)
    all_s = sum(lost_s.values()) + overhead_s
    return Roofline(
        achieved=min(possible_s * kernels_s / known_s / step_s, 1.0),
        known=known_s / kernels_s,
        known_s=known_s,
        possible_s=possible_s,
        ceilings=ceilings,
        lost=most if lost_s[name] >= overhead_s else None,
        lost_share=max(lost_s[name], overhead_s) / all_s if all_s > 0 else 0.0,
        unknown=names[:_NAMED],
    )


def _arithmetic_s(operator: CostlyOperator, ceilings: Ceilings) -> float:
    """The least time of the operations alone, seconds a step."""
    cost = operator.cost
    rate = ceilings.flops(cost) if cost is not None and cost.flops else None
    return operator.calls * cost.flops / rate if cost is not None and rate else 0.0


def _lost_s(operator: CostlyOperator) -> float:
    return operator.seconds - min(operator.possible_s or 0.0, operator.seconds)


def costliest(operators: Sequence[CostlyOperator]) -> tuple[CostlyOperator, ...]:
    """Those that take the most time."""
    return tuple(operators[:_SHOWN])
