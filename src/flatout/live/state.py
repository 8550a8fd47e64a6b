"""What a viewer shows of a run at one moment: plain values, taken from its history."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from flatout.live.history import History
from flatout.live.projection import End, Plan, epoch_steps, predict_end
from flatout.live.warnings import Warn, warnings_of
from flatout.record import ending_of
from flatout.terminal_text import shell_line

_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])")


@dataclass(frozen=True)
class Gpu:
    """One GPU in its latest sample; None: not measured."""

    index: int
    util: float | None  # 0 to 1
    memory_used: int | None
    memory_total: int | None


@dataclass(frozen=True)
class State:
    """A run at one moment. Rates and shares are of the latest steps; None: not measured, or not yet."""

    run: str
    command: str
    elapsed_s: float  # since the recording began
    stop: str | None  # how it ended, as in run.json, or "broken off"; None: it goes on
    exit_code: int | None  # of the command, if it ended by itself
    failure: str | None  # that the command failed, in words
    silent_s: float | None  # since the record told of anything, where that is too long ago to tell of the present
    steps: int
    epoch: int | None  # from 1 on
    epoch_step: int | None
    epoch_steps: int | None
    steps_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None
    wait_share_all: float | None  # since the first step
    gpus: tuple[Gpu, ...] | None  # None: not measured; empty: there are none
    cores_busy: float | None
    cores: float | None
    memory_used: int | None
    memory_limit: int | None
    shm_used: int | None
    shm_size: int | None
    loss: tuple[str, float] | None  # name and latest value
    end: End | None
    end_in_s: float | None
    deadline_in_s: float | None
    warnings: tuple[Warn, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def state_of(history: History, plan: Plan) -> State:
    """The state of a run as its record tells it."""
    info, ending = history.info, ending_of(history.info)
    # What the last steps and samples told is not the present once nothing comes after them.
    present = not history.silent
    latest = history.latest() if present else []
    whole_s = sum(step.duration_s for step in latest)
    samples = sum(step.samples for step in latest)
    sample = history.samples[-1] if history.samples and present else {}
    now_ns, start_ns = history.now_ns, info.get("start_ns") or history.now_ns
    gpus = sample.get("gpus")
    memory, shm, cpu = sample.get("memory") or {}, sample.get("shm") or {}, sample.get("cpu")
    end = predict_end(history, plan) if present else None
    return State(
        run=str(info.get("id") or ""),
        command=shell_line(info.get("command") or ()),
        elapsed_s=(now_ns - start_ns) / 1e9,
        stop=history.stop,
        exit_code=ending.exit_code,
        failure=ending.failure,
        silent_s=None if present else history.silent_s,
        steps=history.steps,
        epoch=len(history.epochs) or None,
        epoch_step=history.epochs[-1][2] if history.epochs else None,
        epoch_steps=epoch_steps(history) if history.epochs else None,
        steps_per_s=len(latest) / whole_s if whole_s > 0 else None,
        samples_per_s=samples / whole_s if whole_s > 0 and samples else None,
        wait_share=sum(step.wait_s for step in latest) / whole_s if whole_s > 0 and history.loader else None,
        wait_share_all=history.wait_s / history.stepping_s if history.stepping_s > 0 and history.loader else None,
        gpus=None if gpus is None else tuple(_gpu(one) for one in gpus),
        cores_busy=sum(cpu) if cpu else None,
        cores=sample.get("cpu_usable"),
        memory_used=memory.get("used"),
        memory_limit=memory.get("limit"),
        shm_used=shm.get("used"),
        shm_size=shm.get("size"),
        loss=_loss(history),
        end=end,
        end_in_s=(end.at_ns - now_ns) / 1e9 if end is not None else None,
        deadline_in_s=plan.deadline_s - (now_ns - start_ns) / 1e9 if plan.deadline_s is not None else None,
        warnings=warnings_of(history, plan),
    )


def _gpu(sample: dict[str, Any]) -> Gpu:
    return Gpu(sample["index"], sample.get("util"), sample.get("memory_used"), sample.get("memory_total"))


def _loss(history: History) -> tuple[str, float] | None:
    """The latest training loss that was logged; of several names the shortest."""
    names = sorted((name for name in history.metrics if _LOSS.search(name.lower())), key=lambda one: (len(one), one))
    latest = {name: history.metrics[name][1] for name in names if math.isfinite(history.metrics[name][1])}
    trained = [name for name in latest if "val" not in name.lower()]
    return next(((name, latest[name]) for name in trained or latest), None)
