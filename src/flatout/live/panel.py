"""The state of a run as one panel of at most 80 columns, and as one line."""

from __future__ import annotations

import time
from collections.abc import Callable

from flatout.live.history import BROKEN_OFF
from flatout.live.state import Gpu, State
from flatout.report.layout import Glyphs, shorten_middle, wrap
from flatout.units import duration, percent, size, three_figures

WIDTH = 80
BAR = 20  # cells
MOST_GPUS = 4
MOST_WARNINGS = 3


def panel_lines(state: State, glyphs: Glyphs, width: int = WIDTH, clock: Callable[[], float] = time.time) -> list[str]:
    """The lines of the panel.

    Args:
        state: what it shows.
        glyphs: characters that the terminal can show.
        width: columns, at least 40.
        clock: the wall clock, seconds.
    """
    inner = min(max(width, 40), WIDTH) - 4
    rows = [_steps(state), *([] if state.silent_s else [_wait(state, glyphs), _machine(state), _gpus(state)])]
    rows.append(_end(state, clock()))
    lines = [line for row in rows if row for line in wrap(glyphs.text(row), inner)]
    for warning in state.warnings[:MOST_WARNINGS]:
        first, *more = wrap(glyphs.text(warning.text), inner - 2)
        lines += [f"! {first}", *(f"  {line}" for line in more)]
    if len(state.warnings) > MOST_WARNINGS:
        lines.append(f"! and {len(state.warnings) - MOST_WARNINGS} more warnings")
    name = shorten_middle(glyphs.text(state.run), inner - 20, glyphs.ellipsis)
    title = f" {name} {glyphs.rule} {duration(state.elapsed_s)} "
    return [_edge(title, inner + 4, glyphs), *lines, glyphs.rule * (inner + 4)]


def one_line(state: State, clock: Callable[[], float] = time.time) -> str:
    """The state in one line, for where there is no terminal."""
    parts = [_steps(state), f"waiting {_share(state.wait_share)}" if state.steps and not state.silent_s else ""]
    parts += [_end(state, clock()) or ""]
    return "; ".join(part for part in parts if part)


def _edge(title: str, width: int, glyphs: Glyphs) -> str:
    return (glyphs.rule * 2 + title).ljust(width, glyphs.rule)


def _steps(state: State) -> str:
    if not state.steps:
        return f"no training step yet, {duration(state.elapsed_s)} after the start"
    parts = [f"step {state.steps:,}"]
    if state.steps_per_s:
        parts.append(f"{three_figures(state.steps_per_s)} steps/s")
    if state.samples_per_s:
        parts.append(f"{three_figures(state.samples_per_s)} samples/s")
    if state.epoch and state.epoch_steps:
        parts.append(f"epoch {state.epoch}: {state.epoch_step:,} of {state.epoch_steps:,}")
    if state.loss:
        parts.append(f"{state.loss[0]} {state.loss[1]:.4g}")
    return "   ".join(parts)


def _wait(state: State, glyphs: Glyphs) -> str | None:
    if not state.steps:
        return None
    if state.wait_share is None:
        return "waiting for batches: not measured, because no DataLoader feeds the steps"
    bar = glyphs.bar(state.wait_share, BAR)
    track = bar + ("·" if glyphs.unicode else ".") * (BAR - len(bar))
    return (
        f"waiting for batches {percent(state.wait_share)} {track} (since the first step {_share(state.wait_share_all)})"
    )


def _machine(state: State) -> str | None:
    parts = []
    if state.cores_busy is not None:
        parts.append(f"CPU {state.cores_busy:.1f}" + (f" of {state.cores:g} cores" if state.cores else " cores"))
    if state.memory_used is not None:
        parts.append(
            f"RAM {size(state.memory_used)}" + (f" of {size(state.memory_limit)}" if state.memory_limit else "")
        )
    if state.shm_used is not None and state.shm_size is not None:
        parts.append(f"/dev/shm {size(state.shm_used)} of {size(state.shm_size)}")
    return "   ".join(parts) or None


def _gpus(state: State) -> str | None:
    if state.gpus is None:
        return "GPU: not measured" if state.cores_busy is not None else None
    shown = "   ".join(_gpu(one) for one in state.gpus[:MOST_GPUS])
    more = f"   and {len(state.gpus) - MOST_GPUS} more" if len(state.gpus) > MOST_GPUS else ""
    return shown + more or None


def _gpu(gpu: Gpu) -> str:
    text = f"GPU {gpu.index} {_share(gpu.util)}"
    if gpu.memory_used is not None and gpu.memory_total:
        text += f", {size(gpu.memory_used)} of {size(gpu.memory_total)}"
    return text


def _end(state: State, now_s: float) -> str | None:
    if state.stop == BROKEN_OFF:
        return f"the recording was broken off: nothing came for {duration(state.silent_s or 0.0)}"
    if state.stop is not None:
        return f"the recording has ended: {state.failure or state.stop}"
    if state.silent_s:
        return f"nothing was recorded for {duration(state.silent_s)}"
    parts = []
    if state.end is not None and state.end_in_s is not None:
        low_s, high_s = (
            state.end_in_s + (one - state.end.at_ns) / 1e9 for one in (state.end.low_ns, state.end.high_ns)
        )
        at, low, high = (_wall(now_s + one, now_s) for one in (state.end_in_s, low_s, high_s))
        interval = f" ({low} to {high})" if low != high else ""
        parts.append(f"{state.end.what} ends {at}{interval}, in {duration(max(state.end_in_s, 0.0))}")
    if state.deadline_in_s is not None:
        parts.append(f"deadline {_wall(now_s + state.deadline_in_s, now_s)}")
    return "   ".join(parts) or None


def _wall(at_s: float, now_s: float) -> str:
    """A wall-clock time; with its day where it is not today's, with seconds where it is near."""
    at, now = time.localtime(at_s), time.localtime(now_s)
    near = abs(at_s - now_s) < 600
    return time.strftime(("" if at[:3] == now[:3] else "%d %b ") + ("%H:%M:%S" if near else "%H:%M"), at)


def _share(share: float | None) -> str:
    return "not measured" if share is None else percent(share)
