"""The Markdown page: what was measured, against the goals and the rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from added import Cost, Spread
from event_cost import EventCost
from runs import Cell
from tools import CONTROL, FLATOUT, TOOLS

GOAL_ADDED_US = (2.0, 50.0)  # step in ms, µs
GOAL_SHARE = (10.0, 0.005)  # step in ms, share of the step
GOAL_EVENT_US = 2.0


@dataclass(frozen=True)
class Conditions:
    """Under which the figures hold."""

    machine: str
    processor: str
    kernel: str
    load: str  # at the start, over 1, 5 and 15 minutes
    versions: dict[str, str]
    command: str
    date: str
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Results:
    """All that a page shows; ``not_measured`` maps what is missing to the reason."""

    costs: Sequence[Cost]
    events: EventCost
    not_measured: dict[str, str]


def markdown(conditions: Conditions, results: Results) -> str:
    """The page, ending with a newline."""
    parts = [
        "# What recording costs a training",
        _introduction(conditions),
        "## Goals\n\n" + _table(["goal", "where", "measured", ""], _goals(results)),
        "## Added to a step\n\n" + _table(STEP_COLUMNS, [_step_row(cost) for cost in results.costs]),
        _reading(),
        "## Where flatout costs more than a rival\n\n" + _losses(results.costs),
        "## Memory of the training process, and the record\n\n" + _table(SIZE_COLUMNS, _size_rows(results.costs)),
        "## One event\n\n" + _events(results.events),
    ]
    if results.not_measured:
        missing = [f"- {what}: not measured, because {because}" for what, because in results.not_measured.items()]
        parts.append("## Not measured\n\n" + "\n".join(missing))
    parts.append("## How\n\n" + _how())
    return "\n\n".join(parts) + "\n"


def _introduction(conditions: Conditions) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in conditions.versions.items())
    rows = [
        ["date", conditions.date],
        ["machine", conditions.machine],
        ["processor", conditions.processor],
        ["kernel", conditions.kernel],
        ["load at the start (1, 5, 15 min)", conditions.load],
        ["versions", versions],
        ["command", f"`{conditions.command}`"],
        ["rounds", f"{conditions.rounds}, runs of about {conditions.seconds:g} s of steps"],
    ]
    return _table(["", ""], rows)


def _goals(results: Results) -> Iterator[list[str]]:
    noise = {cost.cell: abs(cost.added_s.median) for cost in results.costs if cost.tool == CONTROL}
    for cost in results.costs:
        if cost.tool != FLATOUT:
            continue
        where = f"{_milliseconds(cost.cell)} steps, {_workers(cost.cell)}"
        noise_s = noise.get(cost.cell, 0.0)
        if cost.cell.step_ms == GOAL_ADDED_US[0]:
            limit_us = GOAL_ADDED_US[1]
            median_us, mean_us = cost.added_s.median * 1e6, cost.added_mean_s.median * 1e6
            measured = f"{median_us:+.0f} µs (by the mean step {mean_us:+.0f} µs)"
            verdict = _verdict(median_us <= limit_us, mean_us <= limit_us, cost.added_s.high * 1e6 <= limit_us)
            if noise_s * 1e6 > limit_us:
                verdict = _too_noisy(noise_s)
            yield [f"at most {limit_us:g} µs a step", where, measured, verdict]
        if cost.cell.step_ms == GOAL_SHARE[0]:
            limit = GOAL_SHARE[1]
            measured = f"{cost.share:+.2%} (by the mean step {cost.mean_share:+.2%})"
            verdict = _verdict(cost.share <= limit, cost.mean_share <= limit, cost.added_s.high / cost.step_s <= limit)
            if noise_s / cost.step_s > limit:
                verdict = _too_noisy(noise_s)
            yield [f"at most {limit:.1%} of a step", where, measured, verdict]
    event = results.events.wrapped_ns
    goal = f"at most {GOAL_EVENT_US:g} µs an event"
    if event is None:
        yield [goal, "wrapped call", f"not measured, because {results.events.because}", "not known"]
        return
    met = event.median / 1e3 <= GOAL_EVENT_US
    verdict = _verdict(met, met, event.high / 1e3 <= GOAL_EVENT_US)
    yield [goal, "wrapped call", f"{event.median / 1e3:.2f} µs", verdict]


def _verdict(by_median: bool, by_mean: bool, in_every_round: bool) -> str:
    if not by_median:
        return "**not met**"
    if not by_mean:
        return "met by the median step, **not by the mean step**"
    return "met" if in_every_round else "met, but not in every repetition"


def _too_noisy(noise_s: float) -> str:
    return f"not known: the machine was too noisy, bare differs from bare by {noise_s * 1e6:.0f} µs"


STEP_COLUMNS = [
    "bare step",
    "workers",
    "with",
    "added to the median step",
    "%",
    "added to the mean step",
    "%",
    "added CPU time",
]


def _step_row(cost: Cost) -> list[str]:
    return [
        f"{cost.step_s * 1e3:.2f} ms",
        str(cost.cell.workers),
        cost.tool,
        _microseconds(cost.added_s),
        f"{cost.share * 100:+.2f}",
        _microseconds(cost.added_mean_s),
        f"{cost.mean_share * 100:+.2f}",
        _microseconds(cost.added_cpu_s),
    ]


def _reading() -> str:
    return f"""\
Median over the rounds of: step with the tool less bare step of the same round; in brackets the lowest and the
highest round. `{CONTROL}` is the bare script against itself: a figure inside its brackets is within noise.
The median step shows what every step pays, the mean step also what rare stalls cost, such as those of a sampler.
CPU time is that of the training process with all its threads, a step; it is not all waited for."""


def _losses(costs: Sequence[Cost]) -> str:
    ours = {cost.cell: cost for cost in costs if cost.tool == FLATOUT}
    lines = []
    for cost in costs:
        if cost.tool in (FLATOUT, CONTROL) or cost.cell not in ours:
            continue
        mine = ours[cost.cell]
        where = f"{_milliseconds(cost.cell)} steps, {_workers(cost.cell)}"
        for what, own, theirs in (
            ("median step", mine.added_s, cost.added_s),
            ("mean step", mine.added_mean_s, cost.added_mean_s),
        ):
            if own.median > theirs.median:
                apart = "" if own.low > theirs.high else "; the rounds overlap"
                figures = f"{own.median * 1e6:+.0f} µs against {theirs.median * 1e6:+.0f} µs"
                lines.append(f"- {where}, {what}: flatout {figures} for {cost.tool}{apart}")
    if not ours:
        return "Not known: flatout was not measured."
    if not any(cost.tool not in (FLATOUT, CONTROL) for cost in costs):
        return "Not known: no rival was measured."
    return "\n".join(lines) or "In no row."


SIZE_COLUMNS = ["bare step", "workers", "with", "peak RSS", "against bare", "record per 1,000 steps"]


def _size_rows(costs: Sequence[Cost]) -> Iterator[list[str]]:
    for cost in costs:
        if cost.tool == CONTROL:
            continue
        peak, bare = cost.peak_rss_bytes, cost.bare_rss_bytes
        yield [
            _milliseconds(cost.cell),
            str(cost.cell.workers),
            cost.tool,
            "not measured" if peak is None else f"{peak / 2**20:.0f} MiB",
            "not measured" if peak is None or bare is None else f"{(peak - bare) / 2**20:+.1f} MiB",
            f"{cost.record_bytes_per_1000_steps / 2**10:,.0f} KiB",
        ]


def _events(events: EventCost) -> str:
    def row(what: str, spread: Spread) -> list[str]:
        return [what, f"{spread.median:.0f} ns", f"{spread.low:.0f} to {spread.high:.0f} ns"]

    rows = [row("writing one event", events.emit_ns)]
    if events.wrapped_ns is not None:
        rows.append(row("a wrapped call: two clock readings, the tests before them, the event", events.wrapped_ns))
    if events.cold_ns is not None:
        rows.append(row("the same, each time after a pass over 64 MiB of other data", events.cold_ns))
    note = (
        "In a loop that does nothing else, so with warm caches, but for the last row: inside a training, whose data "
        "push the probe's code and objects out of the caches, an event costs between the two."
    )
    return _table(["", "median", "lowest to highest"], rows) + "\n\n" + note


def _how() -> str:
    lines = [f"- {tool.name}: {tool.how}" for tool in TOOLS]
    text = """\
The same script runs under each tool in turn, forwards and backwards (A B C D E, E D C B A, B C D E A, …), each time in
a new process of the same interpreter: a small convolutional network on the CPU with one thread, batches from memory by
a DataLoader, SGD, one line printed every 50 steps. Its width is found at the start so that a bare step takes about the
time asked for; the tables show what it took. It times its own steps, the wait for the batch included, and leaves out
the first ten. A run counts only when the tool's record holds all its steps. The peak RSS is that of the training
process; what tools run beside it is not in it, nor are the DataLoader's workers. The record is the folder that a tool
leaves, including what it writes once a run."""
    return text + "\n\n" + "\n".join(lines)


def _milliseconds(cell: Cell) -> str:
    return f"{cell.step_ms:g} ms"


def _workers(cell: Cell) -> str:
    return f"{cell.workers} worker{'' if cell.workers == 1 else 's'}"


def _microseconds(spread: Spread) -> str:
    return f"{spread.median * 1e6:+.0f} µs ({spread.low * 1e6:+.0f} to {spread.high * 1e6:+.0f})"


def _table(columns: Sequence[str], rows: Iterator[list[str]] | Sequence[list[str]]) -> str:
    """A table whose source is aligned, so that it reads as well on a terminal."""
    cells = [list(columns), *rows]
    widths = [max(3, *(len(row[index]) for row in cells)) for index in range(len(columns))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
