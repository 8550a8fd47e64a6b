"""A plan into a deadline: as lines of the terminal's width, at most 80 columns, and as JSON."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len

from flatout.plans.costs import Costs
from flatout.plans.planning import HOPELESS, Plan
from flatout.plans.scenarios import Scenario, Work
from flatout.report import other_gpu
from flatout.report.layout import shorten_middle, wrap
from flatout.terminal_text import one_line
from flatout.units import counted, duration, factor, percent

SCHEMA = 1
WIDTH, MIN_WIDTH = 80, 40
WORDS = {
    "startup_s": "start-up, to the end of the first step",
    "first_extra_s": "first epoch, longer by",
    "step_s": "step, waits included",
    "between_s": "validation, checkpoint, next epoch's start",
    "fold_start_s": "start of another fold",
    "ending_s": "after the last step",
}


def lines(plan: Plan, width: int = WIDTH) -> list[str]:
    """For a terminal of that many columns, at least MIN_WIDTH."""
    source = shorten_middle(one_line(plan.source), width - 12, "...")
    text = [*wrap(verdict(plan), width), "", f"Measured ({source})", *_costs(plan.costs)]
    text += ["", *wrap("Predicted, in time after the start of the command", width), *_table(plan.scenarios, width)]
    if plan.gain:
        span = f"{factor(plan.gain.low)} to {factor(plan.gain.high)}"
        head = f"With the proved gain in throughput, {factor(plan.gain.factor)} ({span})"
        text += ["", *wrap(head, width), *_table(plan.after, width)]
    if plan.other:
        text += [*other_gpu.lines(plan.other, width), ""]
        text += [*wrap(f"Predicted on the {plan.other.then.name}", width), *_table(plan.there, width)]
    text += ["", *_hanging("Share is work done of what was asked for. Less work is not throughput: a step takes as "
                           "long in each row of a table.", width)]  # fmt: skip
    text += _hanging("Cut first: epochs of each fold, down to a third; then folds; then the last fold's epochs.", width)
    if plan.price:
        text += _hanging(_prices(plan), width)
    text += _milestones(plan, width)
    if plan.costs.notes:
        text += ["", *wrap("Notes on what was measured, and what was assumed", width)]
        text += [line for note in plan.costs.notes for line in _hanging(note, width, "- ")]
    return [part for line in text for part in _folded(one_line(line), width)]


def terminal_width() -> int:
    """Columns of the terminal, if standard output is one, else WIDTH."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(MIN_WIDTH, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def _folded(line: str, width: int) -> list[str]:
    """A row that is too long for the terminal, as rows; those that follow are indented by two more."""
    if cell_len(line) <= width:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip(" ")), 2)
    sentence = re.sub(" {2,}", ", ", re.sub(" {2,}", ": ", line.strip(), count=1))  # columns would be lost
    first, *others = wrap(sentence, width - len(indent) - 2)
    return [indent + first, *(f"{indent}  {other}" for other in others)]


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


def _table(scenarios: Sequence[Scenario], width: int) -> list[str]:
    if width < WIDTH:  # a paragraph each: seven columns do not fit
        return [line for one in scenarios for line in _folded(f"  {_row(one)}", width)]
    columns = f"{'optimistic':>11}{'expected':>10}{'conservative':>13}"
    rows = [f"  {'':<13}{'folds x epochs':<16}{'share':>6}{columns}{'in time':>9}"]
    for one in scenarios:
        ends = _clock(one.optimistic_s), _clock(one.expected_s), _clock(one.conservative_s)
        rows.append(
            f"  {one.name:<13}{_short(one.work):<16}{percent(one.share, decimals=0):>6}"
            f"{ends[0]:>11}{ends[1]:>10}{ends[2]:>13}{_chance(one):>9}"
        )
    return rows


def _row(one: Scenario) -> str:
    share = percent(one.share, decimals=0)
    return f"{one.name}: folds x epochs {_short(one.work)}, share {share}, {_span(one)}, in time {_chance(one)}"


def _milestones(plan: Plan, width: int) -> list[str]:
    if plan.watched is None or not plan.milestones:
        return []
    head = f"As good as certain to fail ({_named(plan.watched)}), if by this time less is done"
    text = ["", *wrap(head, width)]
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


def _hanging(text: str, width: int, mark: str = "") -> list[str]:
    first = wrap(text, width - 2 - len(mark))
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
