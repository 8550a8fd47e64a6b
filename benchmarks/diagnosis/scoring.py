"""From answers and truth to accuracy, false alarms, calibration and the error of predictions."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scenarios import FIXED, ORIGINAL, USUAL, Scenario
from tools import FLATOUT, HEALTHY, MEANS, TRACEML, TRAIN_DOCTOR, Answer

CONFIDENCES = (0.0, 0.5, 0.7, 0.8, 0.9, 1.01)  # bounds of the reliability table


class Key(NamedTuple):
    """One run."""

    script: str
    seed: int
    variant: str
    tool: str


Results = dict[Key, Answer]


def read(path: Path) -> Results:
    """The answers in a file of results; none if there is no such file."""
    if not path.exists():
        return {}
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return {Key(*row["key"]): Answer(**row["answer"]) for row in rows}


@dataclass(frozen=True)
class Judged:
    """One answer about an original script, compared with the truth."""

    scenario: Scenario
    key: Key
    answer: Answer
    first: bool
    three: bool
    second: bool | None  # the smaller of two faults is among the first three


@dataclass(frozen=True)
class Gain:
    """A measured change of the rate, beside what flatout predicted for it."""

    scenario: Scenario
    seed: int
    measured: float
    removed: float | None  # what the share of the planted cause says: 1 / (1 - share)
    predicted: float | None
    low: float | None
    high: float | None


def judge(scenarios: list[Scenario], results: Results, tool: str) -> list[Judged]:
    """Every answer of a tool to an original script; without those where it gave none."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    judged = []
    for key, answer in results.items():
        if key.tool != tool or key.variant != ORIGINAL or not answer.verdicts:
            continue
        scenario = by_name[key.script]
        named = [set(MEANS.get(tool, {}).get(verdict, (verdict,))) for verdict in answer.verdicts]
        truth = {HEALTHY} if scenario.healthy else {scenario.cause, *scenario.also}
        second = any(scenario.second in one for one in named[:3]) if scenario.second else None
        first, three = bool(named[0] & truth), any(one & truth for one in named[:3])
        judged.append(Judged(scenario, key, answer, first, three, second))
    return judged


def gains(scenarios: list[Scenario], results: Results, variant: str = FIXED) -> list[Gain]:
    """What the fixes, or the usual advice, gave."""
    found = []
    for scenario in scenarios:
        for key, answer in results.items():
            if key.script != scenario.name or key.tool != FLATOUT or key.variant != ORIGINAL:
                continue
            after = results.get(key._replace(variant=variant))
            factor = speedup(answer, after, scenario) if after is not None else None
            if factor is None:
                continue
            told = answer.gains.get(scenario.remedy or "") if variant == FIXED else None
            share = max((answer.shares.get(id, 0.0) for id in (scenario.cause or "", *scenario.also)), default=0.0)
            removed = 1.0 / (1.0 - min(share, 0.999)) if share and variant == FIXED else None
            found.append(Gain(scenario, key.seed, factor, removed, *(told or (None, None, None))))
    return found


def speedup(before: Answer, after: Answer, scenario: Scenario) -> float | None:
    """Rate after a fix over the rate before; None: one is unknown.

    Samples count where the fix changes the batch. Elsewhere steps do: of a model that is called piece by piece, the
    samples of a step are other ones than those of one call.
    """
    pairs = [(before.rate_sps, after.rate_sps)]
    if scenario.cause != "small_batch":
        pairs.insert(0, (before.steps_ps, after.steps_ps))
    return next((late / early for early, late in pairs if early and late), None)


def share(flags: Iterable[bool]) -> str:
    """As 34 of 36 (94%)."""
    values = list(flags)
    if not values:
        return "none"
    return f"{sum(values)} of {len(values)} ({100 * sum(values) / len(values):.0f}%)"


def facts(scenarios: list[Scenario], results: Results, tool: str) -> list[tuple[str, str]]:
    """The figures of one tool, as (what, value)."""
    judged = judge(scenarios, results, tool)
    faults = [one for one in judged if not one.scenario.healthy]
    healthy = [one for one in judged if one.scenario.healthy]
    asked = [key for key in results if key.tool == tool and key.variant == ORIGINAL]
    rows = [
        ("runs with an answer", f"{len(judged)} of {len(asked)}"),
        ("planted fault named first", share(one.first for one in faults)),
        ("  of data faults", share(one.first for one in faults if one.scenario.kind == "data")),
        ("  of model and configuration faults", share(one.first for one in faults if one.scenario.kind == "model")),
        ("  the bigger of two faults", share(one.first for one in faults if one.scenario.kind == "two faults")),
        (
            "  where the usual advice is wrong",
            share(one.first for one in faults if one.scenario.kind == "usual advice"),
        ),
        ("planted fault among the first three", share(one.three for one in faults)),
        ("second fault among the first three", share(one.second for one in faults if one.second is not None)),
        ("false alarms on healthy scripts", share(not one.first for one in healthy)),
    ]
    if tool == FLATOUT:
        rows += _own(scenarios, results, judged)
    return rows


def _own(scenarios: list[Scenario], results: Results, judged: list[Judged]) -> list[tuple[str, str]]:
    unaccounted = [one.answer.unaccounted for one in judged if one.answer.unaccounted is not None]
    right = [one.answer.confidence for one in judged if one.first and one.answer.confidence is not None]
    wrong = [one.answer.confidence for one in judged if not one.first and one.answer.confidence is not None]
    rows = []
    if unaccounted:
        over = sum(value >= 0.03 for value in unaccounted)
        rows.append(
            (
                "unaccounted time",
                f"median {statistics.median(unaccounted):.1%}, most {max(unaccounted):.1%}, {over} over 3%",
            )
        )
    if right:
        rows.append(("mean confidence where right", f"{statistics.mean(right):.2f}"))
    if wrong:
        rows.append(("mean confidence where wrong", f"{statistics.mean(wrong):.2f}"))
    fixed = gains(scenarios, results)
    removed = [abs(gain.removed / gain.measured - 1) for gain in fixed if gain.removed]
    if removed:
        rows.append(("1 / (1 - share) against the fix's gain", _error(removed)))
    predicted = [abs(gain.predicted / gain.measured - 1) for gain in fixed if gain.predicted]
    if predicted:
        inside = [gain.low <= gain.measured <= gain.high for gain in fixed if gain.low and gain.high]
        rows.append(("remedy's prediction against its gain", _error(predicted)))
        rows.append(("gain inside the remedy's interval", share(inside)))
    return rows


def _error(errors: list[float]) -> str:
    ordered = sorted(errors)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"median error {statistics.median(ordered):.0%}, p90 {p90:.0%} of {len(ordered)}"


def reliability(scenarios: list[Scenario], results: Results) -> list[tuple[str, str, str]]:
    """How often flatout's first answer is right, by the confidence that it states: (stated, mean, right)."""
    answers = [(one.answer.confidence, one.first) for one in judge(scenarios, results, FLATOUT)]
    rows = []
    for low, high in itertools.pairwise(CONFIDENCES):
        found = [(stated, right) for stated, right in answers if stated is not None and low <= stated < high]
        if found:
            mean = statistics.mean(stated for stated, _ in found)
            rows.append((f"{low:.0%} to {min(high, 1):.0%}", f"{mean:.0%}", share(right for _, right in found)))
    return rows


def summary(scenarios: list[Scenario], results: Results) -> str:
    """For the terminal: figures of each tool, then the misses."""
    lines = []
    for tool in (FLATOUT, TRAIN_DOCTOR, TRACEML):
        if any(key.tool == tool for key in results):
            lines += [tool, *(f"  {what:40} {value}" for what, value in facts(scenarios, results, tool)), ""]
    lines += ["misses of flatout", *(f"  {line}" for line in misses(scenarios, results))]
    advice = gains(scenarios, results, USUAL)
    if advice:
        lines += ["", "the usual advice, applied"]
        lines += [f"  {one.scenario.name:26} seed {one.seed}: {one.measured:.2f}x" for one in advice]
    return "\n".join(lines)


def misses(scenarios: list[Scenario], results: Results) -> list[str]:
    """Each original script whose first cause was wrong, or that gave none."""
    wrong = [one for one in judge(scenarios, results, FLATOUT) if not one.first or one.second is False]
    lines = [verdict_line(one.scenario, one.key, one.answer) for one in wrong]
    for key, answer in results.items():
        if key.tool == FLATOUT and not answer.verdicts:
            lines.append(f"{key.script} seed {key.seed} {key.variant}: {answer.failure}")
    return lines or ["none"]


def verdict_line(scenario: Scenario, key: Key, answer: Answer) -> str:
    """One run on one line."""
    said = ", ".join(
        f"{verdict} {answer.shares[verdict]:.0%}" if verdict in answer.shares else verdict
        for verdict in answer.verdicts[:3]
    )
    rate = f", {answer.rate_sps:.0f}/s" if answer.rate_sps else ""
    lost = f", unaccounted {answer.unaccounted:.1%}" if (answer.unaccounted or 0) >= 0.03 else ""
    truth = scenario.cause or "healthy"
    return f"{key.script} seed {key.seed} {key.variant} {key.tool}: {truth} -> {said or answer.failure}{rate}{lost}"
