"""A recorded step on another GPU: a prediction, from its classes of work and the figures of both parts."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flatout.errors import UsageError
from flatout.measure.kernel_work import KernelWork
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.operators import Operators
from flatout.plans.gains import Gain
from flatout.plans.gpu_parts import GpuPart, chosen_part, find_part
from flatout.plans.kernel_scaling import Precision, time_factor
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import RateModel, fit

Kind = Literal["matrix", "convolution", "memory", "host", "input", "other"]
# Standard deviation of the logarithm of a step's time over its prediction, by generations between the two parts:
# docs/measurements/other-gpus.md. More generations apart were not measured: as the most that was.
SPREADS = (0.15, 0.20, 0.25)
_NORMAL90 = 1.645
# Of the memory that the maker states, the driver and error correction keep some.
_USABLE = 0.9


@dataclass(frozen=True)
class ClassOfWork:
    """A part of the recorded step, and its time there. Seconds of a step."""

    kind: Kind
    now_s: float
    then_s: float


@dataclass(frozen=True)
class Memory:
    """What the training takes, and what the part has; bytes.

    Attributes:
        used: the most that the driver counted, PyTorch's cache included; None: not measured.
        usable: of the other part, at the least.
        total: of the other part, as its maker states.
    """

    used: int | None
    usable: int
    total: int

    @property
    def fits(self) -> bool | None:
        """None: it is not measured, or too near to tell."""
        if self.used is None or self.usable < self.used <= self.total:
            return None
        return self.used <= self.usable


@dataclass(frozen=True)
class OtherGpu:
    """The recorded training on another GPU.

    Attributes:
        now: the part it was recorded on.
        then: the other one.
        classes: of work, the most time first.
        gain: factor on throughput, with its 90% interval.
        step_s: now, of a step with its wait.
        memory: whether it fits.
        notes: what was assumed.
    """

    now: GpuPart
    then: GpuPart
    classes: tuple[ClassOfWork, ...]
    gain: Gain
    step_s: float
    memory: Memory
    notes: tuple[str, ...] = ()


def on_other_gpu(run: MeasuredRun, name: str) -> OtherGpu:
    """Predict the step of a recorded run on the part of this name.

    Raises:
        UsageError: the part is not known, or the run does not hold what such a prediction needs.
    """
    then = chosen_part(name)
    now, operators, model = _recorded_on(run), _kernels(run), fit(run)
    if model is None or not run.ledger.steps.count:
        raise UsageError("--gpu: the recording holds no whole step: record for longer")
    precision = Precision(bool(run.process.tf32), run.process.autocast or run.process.param_dtype or "float32")
    scaled = _scaled(operators, now, then, precision)
    step_s = run.ledger.window_s / run.ledger.steps.count
    change = _change(operators, scaled, 1.0, run, model)
    spread = math.exp(_NORMAL90 * _spread(now, then)) if now != then else 1.0
    slower, faster = (_change(operators, scaled, factor, run, model) for factor in (spread, 1.0 / spread))
    factor = model.factor(change)
    gain = Gain(factor, min(_quantile(model, slower, 0.05), factor), max(_quantile(model, faster, 0.95), factor))
    return OtherGpu(
        now=now,
        then=then,
        classes=_classes(scaled, step_s, step_s / gain.factor, operators, run),
        gain=gain,
        step_s=step_s,
        memory=Memory(run.usage.gpu_memory_used_bytes, round(_USABLE * then.memory_bytes), then.memory_bytes),
        notes=_notes(run, operators, now, then),
    )


def _quantile(model: RateModel, change: Change, at: float) -> float:
    """Of the factors of a change in the resampled recordings: how sure it is what the input gives."""
    factors = [pipeline.changed(change).rate_sps() / pipeline.rate_sps() for pipeline in model.resampled]
    return float(np.quantile(factors, at))


def _recorded_on(run: MeasuredRun) -> GpuPart:
    """The part that the run was recorded on.

    Raises:
        UsageError: it was a CPU, a part of a GPU, several, or one whose figures are not known.
    """
    if not run.process.device_count or run.uses_gpu is False:
        raise UsageError("--gpu: this run was recorded on a CPU, which says nothing of a GPU: record it on any GPU")
    if run.uses_gpu is None:
        raise UsageError("--gpu: whether this run used the GPU is not known: record it with its batches on the GPU")
    name = run.process.gpu
    if not name:
        raise UsageError("--gpu: the record does not name its GPU (is nvidia-ml-py installed?): record it again")
    if run.process.mig:
        raise UsageError(f"--gpu: this run had a MIG slice of {name}, whose share of its rates is not known")
    if run.ledger.steps.processes > 1:
        raise UsageError("--gpu: this run used several GPUs, and how long these exchange gradients is not scaled")
    part = find_part(name)
    if part is None:
        raise UsageError(f"--gpu: this run was recorded on {name}, of which no figures are known")
    return part


def _kernels(run: MeasuredRun) -> Operators:
    """The kernels of a step.

    Raises:
        UsageError: none were traced.
    """
    operators = run.operators
    if isinstance(operators, str):
        raise UsageError(f"--gpu needs the kernels of a step: {operators}; record with flatout profile")
    if not operators.on_device or operators.kernels_s <= 0 or not operators.work:
        raise UsageError("--gpu needs the kernels of a step, and the trace holds none of a GPU: record it again")
    return operators


def _scaled(operators: Operators, now: GpuPart, then: GpuPart, precision: Precision) -> dict[str, tuple[float, float]]:
    """Seconds of a step in kernels, here and there, by kind; wall time, as far as no host work hides behind it."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    wall = operators.in_kernels_s(1.0)
    for work in _on_device(operators):
        found[work.kind][0] += wall * work.seconds
        found[work.kind][1] += wall * work.seconds * time_factor(work, now, then, precision)
    return {kind: (here_s, there_s) for kind, (here_s, there_s) in found.items()}


def _on_device(operators: Operators) -> list[KernelWork]:
    """Copies to and from the host are in accounts of their own."""
    return [work for work in operators.work if work.kind != "bus"]


def _change(
    operators: Operators, scaled: dict[str, tuple[float, float]], factor: float, run: MeasuredRun, model: RateModel
) -> Change:
    """What a step gains if its kernels take ``factor`` of their predicted time.

    The host calls the operators no faster: it bounds the step from below.
    """
    here_s = sum(one[0] for one in scaled.values())
    there_s = factor * sum(one[1] for one in scaled.values())
    computed_s = here_s + operators.overhead_s
    then_s = max(there_s + operators.overhead_s, min(operators.launching_s, computed_s))
    return Change(step_removed_s=(computed_s - then_s) * run.ledger.steps.count / model.batches)


def _spread(now: GpuPart, then: GpuPart) -> float:
    return SPREADS[min(now.generations_to(then), len(SPREADS) - 1)]


def _classes(
    scaled: dict[str, tuple[float, float]], step_s: float, then_s: float, operators: Operators, run: MeasuredRun
) -> tuple[ClassOfWork, ...]:
    """The classes add up to the step, here and there; the wait for input takes what is left there."""
    wait_s = run.ledger.share("batch_wait") * step_s if run.loading is not None else 0.0
    kernels = [ClassOfWork(kind, *scaled[kind]) for kind in ("matrix", "convolution", "memory") if kind in scaled]
    here_s, there_s = (sum(getattr(one, name) for one in kernels) for name in ("now_s", "then_s"))
    host_s = operators.overhead_s
    other_s = max(step_s - wait_s - here_s - host_s, 0.0)
    hidden_s = max(min(operators.launching_s, here_s + host_s) - there_s - host_s, 0.0)
    waits = ClassOfWork("input", wait_s, max(then_s - there_s - host_s - hidden_s - other_s, 0.0))
    found = [*kernels, ClassOfWork("host", host_s, host_s + hidden_s), waits, ClassOfWork("other", other_s, other_s)]
    return tuple(sorted((one for one in found if max(one.now_s, one.then_s) > 0), key=lambda one: -one.now_s))


def _notes(run: MeasuredRun, operators: Operators, now: GpuPart, then: GpuPart) -> tuple[str, ...]:
    notes = ["the same host: its cores, storage and Python are taken to be those of the recording"]
    if now.generations_to(then) >= len(SPREADS):
        notes.append(f"{then.generation} from {now.generation}: farther apart than what was validated")
    known = sum(work.seconds for work in _on_device(operators) if work.flops is not None or work.kind == "memory")
    share = known / sum(work.seconds for work in _on_device(operators))
    if share < 0.9:
        notes.append(f"{1 - share:.0%} of the time in kernels has unknown operations: scaled by the peaks alone")
    if run.usage.gpu_memory_used_bytes is None:
        notes.append("memory: not measured")
    return tuple(notes)
