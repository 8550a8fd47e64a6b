"""The batch sizes that were measured as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flatout.predict.learning_rate import LINEAR
from flatout.remedies.proposal import OPTIMISATION
from flatout.report.layout import shell_lines, wrap
from flatout.report.ratios import bounds
from flatout.terminal_text import one_line
from flatout.trials.batch_keeping import keeping
from flatout.trials.batch_sizes import WITHIN, BatchSizes, SizeRuns
from flatout.trials.outcome import OK
from flatout.units import counted, duration, factor, percent, size, three_figures

WIDTH = 80
SCHEMA = 1
_WAITS = 0.3  # a training that waits longer for batches is held back by them


def lines(found: BatchSizes) -> list[str]:
    """For a terminal."""
    text = [*_wrapped(verdict(found)), "", *_table(found), "", *_wrapped(_bounds(found))]
    if found.settings:
        text += ["", *_wrapped(training(found)), "", *_keep(found)]
    text += ["", *_wrapped(f"{found.ended}{_log(found)} {found.isolation} It took {duration(found.seconds)}.".strip())]
    return [one_line(line) for line in text]


def verdict(found: BatchSizes) -> str:
    """One or two sentences."""
    knee, own, gain = found.knee, found.own, found.gain
    doubt = "" if found.certain else " More runs could still name another size: give a longer --budget."
    if len([one for one in found.sizes if one.runs]) == 1:
        return f"Only batch size {own} was measured, {_rate(knee)}: no other one can be told from it."
    if gain is None:
        return (
            f"Batch size {own}, which the command has, is enough: {_rate(knee)}, and {_nothing_faster(found)}.{doubt}"
        )
    span = f"{bounds(gain)}, 90% interval"
    if knee.size < own:
        return (
            f"Batch size {knee.size} is enough: {_rate(knee)}, {factor(gain.factor)} the speed of {own}, which the "
            f"command has ({span}). {_smallest(found)}{doubt}"
        )
    return (
        f"Batch size {knee.size}: {_rate(knee)}, {factor(gain.factor)} the speed of {own}, which the command has "
        f"({span}). {_smallest(found)}{doubt}"
    )


def _rate(one: SizeRuns) -> str:
    return f"{three_figures(one.rate)} samples/s"


def _nothing_faster(found: BatchSizes) -> str:
    if found.best.size == found.own:
        return "no other size that was measured is faster"
    return f"the fastest, {found.best.size}, is not {percent(WITHIN)} faster"


def _smallest(found: BatchSizes) -> str:
    if found.larger_gain and found.knee is found.best:
        return "It is the largest that was measured, and samples/s still grew."
    return f"It is the smallest that lacks at most {percent(WITHIN)} of the best speed."


# --- the table ---


def _table(found: BatchSizes) -> list[str]:
    on_gpu = any(one.memory.device_bytes for one in found.sizes)
    head = f"  {'batch':>7}{'samples/s':>11}{'of best':>9}  {'90% interval':13}{'step':>8}"
    text = [f"{head}{'GPU mem' if on_gpu else 'host mem':>10}{'steps/ep.':>10}"]
    for one in found.sizes:
        row = _row(found, one, on_gpu)
        marks = [word for word, is_it in (("now", one.size == found.own), ("knee", one is found.knee)) if is_it]
        text.append(f"{row}  {'+'.join(marks)}".rstrip() if one.runs else row)
        if one.runs and one.outcome != OK:
            text.append(f"  {'':7}{'':4}then {one.why}")
    return [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in text]


def _row(found: BatchSizes, one: SizeRuns, on_gpu: bool) -> str:
    if not one.runs:
        return f"  {one.size:>7}    {'' if one.failed else 'not run: '}{one_line(one.why)}"
    ratio = one.against(found.best) if one is not found.best else None
    share = percent(ratio.factor) if ratio else "best"
    span = f"{percent(ratio.low)} to {percent(ratio.high)}" if ratio else ""
    held = one.memory.device_bytes if on_gpu else one.memory.host_bytes
    memory = size(held) if held else "unknown"
    steps = found.steps(one.size)
    return (
        f"  {one.size:>7}{three_figures(one.rate):>11}{share:>9}  {span:13}{duration(one.step_s):>8}{memory:>10}"
        f"{f'{steps:,}' if steps is not None else 'unknown':>10}"
    )


# --- the sentences below it ---


def _bounds(found: BatchSizes) -> str:
    """Why nothing larger was measured, what memory allows, and what else sets the rate."""
    text = [f"Nothing larger: {found.limit}."] if found.limit and found.limit != found.ended else []
    line = found.memory_line
    if line is not None and line.slope_bytes > 0:
        text.append(f"{line.of[0].upper()}{line.of[1:]} memory grows by {size(line.slope_bytes)} a sample, fitted.")
        if (largest := line.largest()) is not None and largest > found.sizes[-1].size and line.total_bytes:
            text.append(f"Predicted, not measured: {size(line.total_bytes)} hold a batch of about {largest:,}.")
    waits = found.best.waits
    if waits is not None and waits >= _WAITS:
        text.append(
            f"At batch size {found.best.size} the training waits for batches {percent(waits)} of the time: the data "
            "sets this rate, not the batch size. `flatout profile` names what holds it back."
        )
    return " ".join(text)


def training(found: BatchSizes) -> str:
    """What the knee changes in the training."""
    own, knee, scaling = found.own, found.knee.size, found.scaling
    steps = found.steps(own), found.steps(knee)
    if None not in steps:
        epoch = f"an epoch has {counted(steps[1] or 0, 'step')} instead of {steps[0]:,}"
    else:
        epoch = f"the same samples make {knee / own:.3g} times {'fewer' if knee > own else 'as many'} steps".replace(
            f"{knee / own:.3g} times as many", f"{own / knee:.3g} times as many"
        )
    root = "proportional to the batch" if scaling.rule == LINEAR else "with the square root of the batch"
    ranks = f" A batch is of one process; {found.ranks} train together." if found.ranks > 1 else ""
    return (
        f"This changes the training (class {OPTIMISATION}): {epoch}, and what it learns is not measured here: look at "
        f"the validation of a whole training.{ranks} Learning rate: x {scaling.factor:.3g}, {root}, "
        f"{scaling.because}: {scaling.source}."
    )


def _keep(found: BatchSizes) -> list[str]:
    kept = keeping(found.command, found.located, found.settings)
    text = []
    if kept.config is not None:
        values = ", ".join(f"{key}: {value}" for key, value in kept.edits.items())
        text += [*_wrapped(f"To keep it, write into {kept.config}: {values}"), ""]
        if kept.command == keeping(found.command, found.located, {}).command:
            return text[:-1]
    return [*text, "To train with it:", *(f"  {line}" for line in shell_lines(kept.command, WIDTH - 2))]


def _log(found: BatchSizes) -> str:
    return f" The output of the runs: {found.log}." if found.log else ""


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH) if text else []


def to_dict(found: BatchSizes) -> dict[str, Any]:
    """For ``--json``: docs/schema/batch-size.schema.json."""
    kept = keeping(found.command, found.located, found.settings)
    line = found.memory_line
    return {
        "schema": SCHEMA,
        "command": list(found.command),
        "verdict": verdict(found),
        "own": found.own,
        "knee": found.knee.size,
        "best": found.best.size,
        "certain": found.certain,
        "still_growing": found.larger_gain and found.knee is found.best,
        "limit": found.limit,
        "gain": asdict(found.gain) if found.gain else None,
        "class": OPTIMISATION,
        "sizes": [_size(found, one) for one in found.sizes],
        "samples_per_epoch": found.samples,
        "ranks": found.ranks,
        "optimizer": found.optimizer,
        "learning_rate": {
            "rule": found.scaling.rule,
            "factor": found.scaling.factor,
            "because": found.scaling.because,
            "source": found.scaling.source,
        },
        "memory": {**asdict(line), "largest_predicted": line.largest()} if line else None,
        "keep": {
            "settings": dict(found.settings),
            "command": kept.command,
            "config": str(kept.config) if kept.config else None,
            "edits": dict(kept.edits),
        }
        if found.settings
        else None,
        "ended": found.ended,
        "isolation": found.isolation,
        "seconds": found.seconds,
        "log": found.log or None,
        "interrupted": found.interrupted is not None,
    }


def _size(found: BatchSizes, one: SizeRuns) -> dict[str, Any]:
    ratio = one.against(found.best) if one is not found.best else None
    return {
        "batch_size": one.size,
        "outcome": one.outcome,
        "why": one.why,
        "rates": [speed.rate for speed in one.speeds],
        "rate": one.rate or None,
        "of_best": asdict(ratio) if ratio else None,
        "step_s": one.step_s if one.runs else None,
        "waits": one.waits,
        "host_bytes": one.memory.host_bytes,
        "device_bytes": one.memory.device_bytes,
        "steps_per_epoch": found.steps(one.size),
    }
