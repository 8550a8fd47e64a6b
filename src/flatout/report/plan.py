"""A plan into a deadline: as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from flatout.plans.costs import Costs
from flatout.plans.planning import HOPELESS, Plan
from flatout.plans.scenarios import Scenario, Work
from flatout.report import other_gpu
from flatout.report.layout import shorten_middle, wrap
from flatout.terminal_text import one_line
from flatout.units import counted, duration, factor, percent

SCHEMA = 1
WIDTH = 80
WORDS = {
    "startup_s": "start-up, to the end of the first step",
    "first_extra_s": "first epoch, longer by",
    "step_s": "step, waits included",
    "between_s": "validation, checkpoint, next epoch's start",
    "fold_start_s": "start of another fold",
    "ending_s": "after the last step",
}


def lines(plan: Plan) -> list[str]:
    """For a terminal."""
    text = [*wrap(verdict(plan), WIDTH), "", f"Measured ({shorten_middle(one_line(plan.source), WIDTH - 12, '...')})"]
    text += _costs(plan.costs)
    text += ["", "Predicted, in time after the start of the command", *_table(plan.scenarios)]
    if plan.gain:
        span = f"{factor(plan.gain.low)} to {factor(plan.gain.high)}"
        text += ["", f"With the proved gain in throughput, {factor(plan.gain.factor)} ({span})", *_table(plan.after)]
    if plan.other:
        text += [*other_gpu.lines(plan.other), "", f"Predicted on the {plan.other.then.name}", *_table(plan.there)]
    text += ["", *_hanging("Share is work done of what was asked for. Less work is not throughput: a step takes as "
                           "long in each row of a table.")]  # fmt: skip
    text += _hanging("Cut first: epochs of each fold, down to a third; then folds; then the last fold's epochs.")
    if plan.price:
        text += _hanging(_prices(plan))
    text += _milestones(plan)
    if plan.costs.notes:
        text += [
            "",
            "Notes on what was measured, and what was assumed",
            *(line for note in plan.costs.notes for line in _hanging(note, "- ")),
        ]
    return [one_line(line) for line in text]


def verdict(plan: Plan) -> str:
    """One or two sentences: whether it fits, and what does; before them, that what was recorded failed."""
    if plan.failure:
        return f"The recorded training did not end well: {plan.failure}. What follows holds once that is repaired. " + (
            _fitting(plan)
        )
    return _fitting(plan)


def _fitting(plan: Plan) -> str:
    asked, deadline = plan.asked_for, duration(plan.limits.deadline_s)
    named = _named(plan.asked)
    if asked.in_time >= 1 - HOPELESS:
        return f"{_capital(named)} fit into {deadline}: predicted end {_span(asked)}, in time {_chance(asked)}."
    if asked.in_time >= HOPELESS:
        first = f"{_capital(named)} may miss {deadline}: predicted end {_span(asked)}, in time {_chance(asked)}."
    else:
        first = (
            f"{_capital(named)} do not fit into {deadline}: predicted end {_span(asked)}. "
            f"When the time is over it is in {_place(plan)}."
        )
    fits = plan.fits
    if fits is None:
        return f"{first} Not even one epoch is sure to fit: less data, a faster step, or more time."
    done = f"{percent(fits.share)} of the work, done by {_clock(fits.conservative_s)} or before"
    return f"{first} What fits: {_named(fits.work)}, {done}."


def _place(plan: Plan) -> str:
    fold, done = plan.reached
    epoch = f"epoch {min(done + 1, plan.asked.epochs)} of {plan.asked.epochs}"
    return f"{epoch} of fold {fold} of {plan.asked.folds}" if plan.asked.folds > 1 else epoch


def _costs(costs: Costs) -> list[str]:
    between = None if not len(costs.between_s) else float(costs.between_s.mean())
    seconds = {**asdict(costs), "step_s": costs.step_s, "between_s": between}
    rows = []
    for key, words in WORDS.items():
        value = seconds[key]
        if key == "first_extra_s" and not value:
            continue
        detail = f" x {counted(costs.steps, 'step')} an epoch" if key == "step_s" else ""
        rows.append(f"  {words:<44}{'not measured' if value is None else duration(value)}{detail}")
    return rows


def _table(scenarios: Sequence[Scenario]) -> list[str]:
    columns = f"{'optimistic':>11}{'expected':>10}{'conservative':>13}"
    rows = [f"  {'':<13}{'folds x epochs':<16}{'share':>6}{columns}{'in time':>9}"]
    for one in scenarios:
        ends = _clock(one.optimistic_s), _clock(one.expected_s), _clock(one.conservative_s)
        rows.append(
            f"  {one.name:<13}{_short(one.work):<16}{percent(one.share, decimals=0):>6}"
            f"{ends[0]:>11}{ends[1]:>10}{ends[2]:>13}{_chance(one):>9}"
        )
    return rows


def _milestones(plan: Plan) -> list[str]:
    if plan.watched is None or not plan.milestones:
        return []
    text = ["", f"As good as certain to fail ({_named(plan.watched)}), if by this time less is done"]
    for one in plan.milestones:
        fold = f"fold {one.fold}, " if plan.watched.folds > 1 else ""
        then = f"then stop at {_short(one.then)}" if one.then else "then end it: nothing more fits"
        text.append(f"  {_clock(one.latest_s):>9}  {fold}epoch {one.epoch}, step {one.step:,}: {then}")
    return text


def _prices(plan: Plan) -> str:
    assert plan.price is not None, "asked for only when there is one"
    of = f"{plan.price.per_hour:g} {plan.price.currency}".strip()
    each = ", ".join(f"{one.name} {one.price:.2f}" for one in plan.scenarios if one.price is not None)
    return f"Cost of the expected time at {of}/h ({plan.price.source}): {each}."


def _named(work: Work) -> str:
    epochs = counted(work.epochs, "epoch")
    folds = f"{counted(work.folds, 'fold')} x {epochs}" if work.folds > 1 else epochs
    return folds if work.subset == 1 else f"{folds} of {percent(work.subset)} of the data"


def _short(work: Work) -> str:
    data = "" if work.subset == 1 else f", {percent(work.subset, decimals=0)}"
    return f"{work.folds} x {work.epochs}{data}"


def _span(one: Scenario) -> str:
    return f"{_clock(one.expected_s)} ({_clock(one.optimistic_s)} to {_clock(one.conservative_s)})"


def _clock(seconds: float) -> str:
    """Short, for columns: "45 s", "3m 20s", "2h 05m"."""
    if seconds < 59.5:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h {minutes:02d}m" if hours < 48 else f"{hours / 24:,.0f}d"


def _chance(one: Scenario) -> str:
    """Of a prediction, never 0% nor 100%."""
    if one.in_time < 0.01:
        return "<1%"
    return ">99%" if one.in_time > 0.99 else f"{math.floor(100 * one.in_time + 0.5)}%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _hanging(text: str, mark: str = "") -> list[str]:
    first = wrap(text, WIDTH - 2 - len(mark))
    return ["  " + (mark if not at else " " * len(mark)) + line for at, line in enumerate(first)]


def to_dict(plan: Plan) -> dict[str, Any]:
    """For ``--json``: docs/schema/plan.schema.json."""
    costs = plan.costs
    return {
        "schema": SCHEMA,
        "verdict": verdict(plan),
        "source": plan.source,
        "asked": asdict(plan.asked),
        "deadline_s": plan.limits.deadline_s,
        "reserve_s": plan.limits.reserve_s,
        "in_time": plan.asked_for.in_time,
        "measured": {
            "startup_s": costs.startup_s,
            "steps_per_epoch": costs.steps,
            "step_s": costs.step_s,
            "between_epochs_s": float(costs.between_s.mean()) if len(costs.between_s) else None,
            "first_epoch_extra_s": costs.first_extra_s,
            "fold_start_s": costs.fold_start_s,
            "ending_s": costs.ending_s,
            "notes": list(costs.notes),
        },
        "failure": plan.failure,
        "scenarios": [asdict(one) for one in plan.scenarios],
        "fits": asdict(plan.fits) if plan.fits else None,
        "gain": asdict(plan.gain) if plan.gain else None,
        "after": [asdict(one) for one in plan.after],
        "other_gpu": (
            {**other_gpu.to_dict(plan.other), "scenarios": [asdict(one) for one in plan.there]} if plan.other else None
        ),
        "price": asdict(plan.price) if plan.price else None,
        "milestones": [asdict(one) for one in plan.milestones],
        "reached": {"fold": plan.reached[0], "epochs": plan.reached[1]},
    }
