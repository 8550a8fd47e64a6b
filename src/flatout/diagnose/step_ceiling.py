"""A step beside what its device gives, in words: for the verdict, and as evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from flatout.measure.costly_operators import CostlyOperator
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.operator_costs import NOTHING
from flatout.measure.operators import Operators
from flatout.measure.roofline import Roofline
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.results import Evidence
from flatout.units import duration, factor, flops, percent, size

_SHOWN_SHARE = 0.01  # of the time in kernels


def how_near(run: MeasuredRun) -> str:
    """A sentence: how near a step comes to what the device gives, or why that is not known."""
    operators = run.operators
    found = operators if isinstance(operators, str) else operators.roofline
    if isinstance(found, str):
        return f"Whether that is slow is not known, because {found}"
    where = "Python and the launching of operators" if found.lost is None else _named(found.lost)
    part = "most" if found.lost_share > DOMINANT_SHARE else "the largest part"
    return (
        f"A step runs at {percent(found.achieved)} of what this device gives for its operators: "
        f"at most {factor(found.left)} is left with the same ones, {part} of it in {where}"
    )


def _named(operator: CostlyOperator) -> str:
    return f"{operator.short_name}{_lines(operator)}"


def _lines(operator: CostlyOperator) -> str:
    places = [f"{PurePath(line.file).name}:{line.line}" for line in operator.lines]
    return f" ({', '.join(places)})" if places else ""


def ceiling_evidence(run: MeasuredRun) -> Iterator[Evidence]:
    """The rates, what a step takes and would take, and the costliest operators."""
    operators = run.operators
    if isinstance(operators, str):
        return
    found = operators.roofline
    if not isinstance(found, str):
        yield _rates(found)
        yield _step(operators, found)
    for one in operators.costliest:
        if one.seconds >= _SHOWN_SHARE * operators.kernels_s:
            yield _operator(one, operators.kernels_s)


def _rates(found: Roofline) -> Evidence:
    ceilings = found.ceilings
    values: dict[str, float | int | str] = {"threads": ceilings.threads}
    parts = []
    for what, key, rates in (
        ("products", "product_flops", ceilings.product_flops),
        ("convolutions", "convolution_flops", ceilings.convolution_flops),
    ):
        for dtype, rate in rates.items():
            parts.append(f"{flops(rate)} in {dtype} {what}")
            values[f"{key}_{dtype}"] = rate
    _, memory_bps = max(ceilings.memory)
    cache_bps = max(rate for _, rate in ceilings.memory)
    parts.append(f"{size(memory_bps)}/s of memory, up to {size(cache_bps)}/s of caches")
    values |= {"memory_bps": memory_bps, "cache_bps": cache_bps}
    return Evidence(f"measured after the window, this device gives {', '.join(parts)}", values)


def _step(operators: Operators, found: Roofline) -> Evidence:
    unknown = ""
    if found.unknown:
        unknown = f"; the others ({', '.join(found.unknown)}) are taken to run as these do"
    text = (
        f"operators of known cost take {duration(found.known_s)} of the {duration(operators.kernels_s)} in kernels of "
        f"a step, and would take {duration(found.possible_s)} at these rates; {duration(operators.overhead_s)} pass "
        f"around kernels{unknown}"
    )
    return Evidence(
        text,
        {
            "achieved": found.achieved,
            "left": found.left,
            "known": found.known,
            "known_s": found.known_s,
            "possible_s": found.possible_s,
            "kernels_s": operators.kernels_s,
            "overhead_s": operators.overhead_s,
        },
    )


def _operator(one: CostlyOperator, kernels_s: float) -> Evidence:
    what = " ".join(part for part in (one.short_name, one.dtype, one.inputs) if part)
    text = f"{what}: {percent(one.seconds / kernels_s)} of the time in kernels"
    values: dict[str, float | int | str] = {
        "operator": one.name,
        "inputs": one.inputs,
        "dtype": one.dtype,
        "calls": one.calls,
        "seconds": one.seconds,
        "share": one.seconds / kernels_s,
    }
    if one.flops is not None:
        text += f", {flops(one.flops)}"
        values["flops"] = one.flops
    if one.bytes_per_s is not None:
        text += f", {size(one.bytes_per_s)}/s" if one.flops is None else ""
        values["bytes_per_s"] = one.bytes_per_s
    if one.cost is NOTHING:
        text += ", without work of its own"
    elif one.possible_s is not None and one.seconds > 0:
        reached = min(one.possible_s / one.seconds, 1.0)
        text += f", {percent(reached)} of the possible"
        values |= {"possible_s": one.possible_s, "achieved": reached}
    elif one.cost is None:
        text += ", of unknown cost"
    if one.lines:
        values |= {"file": one.lines[0].file, "line": one.lines[0].line}
    return Evidence(text + _lines(one), values)
