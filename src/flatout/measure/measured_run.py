"""The measured run as plain numbers: the input of causes, predictions and remedies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flatout.measure.called_functions import CalledFunction
from flatout.measure.compiling import Compiling
from flatout.measure.crowding import Crowding
from flatout.measure.debug_code import DebugCode
from flatout.measure.experiments import Experiments
from flatout.measure.frozen_modules import FrozenModules
from flatout.measure.gradients import DiscardedGradients, UnusedGradients
from flatout.measure.input_functions import InputFunction
from flatout.measure.last_steps import LastSteps
from flatout.measure.layer_forms import (
    BroadcastPairs,
    CoordinateProducts,
    GatheredWeights,
    ModelLayouts,
    SpanningKernels,
    StepwiseProducts,
    UnfusedAttention,
    UnfusedFunctions,
    UnmergedLayers,
)
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.lock_waits import LockWaits
from flatout.measure.makers import Makers
from flatout.measure.metrics import Metrics
from flatout.measure.operators import Operators
from flatout.measure.padding import Padding
from flatout.measure.page_faults import PageFaults
from flatout.measure.ranks import Ranks
from flatout.measure.read_values import ReadValues
from flatout.measure.repeated_rows import RepeatedRows
from flatout.measure.repeated_weights import RepeatedWeight
from flatout.measure.repeated_work import RepeatedWork
from flatout.measure.slice_lines import SliceLine
from flatout.measure.stepwise_layers import StepwiseLayer
from flatout.measure.thresholds import THIN_BATCHES
from flatout.measure.validation import ValidationCalls
from flatout.measure.validation_workers import ValidationWorkers
from flatout.results import Account, Ledger, Line

# Compute capabilities (CUDA C++ Programming Guide, "Compute Capabilities"): 7.0 has tensor cores for 16-bit floats,
# 8.0 has them for TF32 and bfloat16 too.
_TENSOR_CORES, _TF32_CORES = 7.0, 8.0
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class GpuShared:
    """Processes outside the training that compute on its GPU.

    Attributes:
        processes: the most at a time.
        memory_bytes: the most that they hold there; 0: the driver does not say.
        share: of the samples in which there was one.
    """

    processes: int
    memory_bytes: int
    share: float


@dataclass(frozen=True)
class Usage:
    """Resource usage in the window, from system samples. None: not measured."""

    main_cores: float | None = None  # mean cores that the training process used
    main_runqueue_share: float | None = None  # of the time, in which the training thread was ready and had no core
    other_cores: float | None = None  # mean cores that processes outside the training used
    crowding: Crowding | None = None  # waits for cores that other processes have
    online_cores: int | None = None  # of the whole machine, usable or not
    worker_bytes: int | None = None  # host memory that one worker adds
    worker_bytes_source: str | None = None  # "PSS" (shared pages divided) or "RSS" (shared pages counted fully)
    available_bytes: int | None = None  # host memory left to the run, smallest sample
    shm_free_bytes: int | None = None  # /dev/shm, smallest sample
    device_busy_share: float | None = None  # of the samples' time in which the GPU ran a kernel
    throttled_share: float | None = None  # of the usable cores' time that a CPU quota took away
    gpu_throttled_share: float | None = None  # of the samples in which the GPU had lowered its clocks
    gpu_throttle_reasons: tuple[str, ...] | None = None
    received_bps: float | None = None  # bytes a second that came in over all networks, this machine's own included
    memory_growth_bps: float | None = None  # bytes a second by which the training's processes grow
    gpu_memory_used_bytes: int | None = None  # the most, without that of other processes where the driver names them
    gpu_shared: GpuShared | None = None  # with processes outside the training; None: with none that the driver names
    gpu_memory_total_bytes: int | None = None
    main_faults: PageFaults | None = None  # of the training process
    worker_faults: PageFaults | None = None  # of the workers, together
    makers: Makers | None = None  # child processes that compute and are no workers of a DataLoader


@dataclass(frozen=True)
class Process:
    """The training process."""

    torch: str | None = None
    cuda: str | None = None
    device_count: int = 0
    threads: int | None = None  # torch.get_num_threads()
    worker_threads: int | None = None  # the same inside the workers, largest
    autocast: str | None = None  # dtype of the first autocast; None: there was none before the first step
    param_dtype: str | None = None  # of the first weight
    tf32: bool | None = None  # whether float32 matrix products may use it
    convolutions: int | None = None  # dimensions of the model's convolutions
    channels_last: bool | None = None
    cudnn_benchmark: bool | None = None
    switch_interval_us: int | None = None  # sys.getswitchinterval()
    compiled: bool | None = None
    outputs: int | None = None  # of the model's last linear layer: classes, if it classifies
    param_bytes: int | None = None  # of the model's weights
    memory_allocated: int | None = None  # most bytes of tensors on the GPU
    memory_reserved: int | None = None  # most that PyTorch held of it
    capability: float | None = None  # compute capability of the GPU
    gpu: str | None = None  # name of the GPU, as the driver has it
    mig: bool | None = None  # that GPU is divided: the training has a part of it
    optimizer: str | None = None  # class of the first one that stepped
    untimed: Mapping[str, str] = field(default_factory=dict)  # part that the probe could not time -> the reason

    @property
    def in_half(self) -> bool:
        """Weights or the autocast of the first step have 16 bits."""
        return self.param_dtype in _HALF or self.autocast in _HALF

    @property
    def half_type(self) -> str | None:
        """The 16-bit type that the GPU's tensor cores compute in, bfloat16 if possible; None: they have none."""
        if self.capability is None or self.capability < _TENSOR_CORES:
            return None
        return "bfloat16" if self.has_tf32 else "float16"

    @property
    def has_tf32(self) -> bool:
        """The GPU has units for TF32."""
        return self.capability is not None and self.capability >= _TF32_CORES


@dataclass(frozen=True)
class MeasuredRun:
    """One measured run. Cause functions are pure functions of it."""

    ledger: Ledger
    loading: LoaderStats | None
    cores: float | None  # usable: affinity and cgroup quota applied
    process: Process = field(default_factory=Process)
    usage: Usage = field(default_factory=Usage)
    uses_gpu: bool | None = False  # None: a GPU is present, but whether it was used is unknown
    device_timed: bool = False  # the ledger charges the time of the GPU's work
    machine: Mapping[str, object] = field(default_factory=dict)
    validations: int | None = None  # passes that began inside the window
    validation_calls: ValidationCalls = field(default_factory=ValidationCalls)
    validation_unfinished: bool = False  # the recording was stopped in the last one
    validation_workers: ValidationWorkers | None = None  # that each pass starts anew
    checkpoints: int | None = None  # writes that began inside the window
    metrics: Metrics = field(default_factory=Metrics)
    ranks: Ranks | None = None  # several ranks, compared; None: there is one, or too few steps
    lock: LockWaits | str | None = None  # text: why it was not measured; None: there is no other Python thread
    operators: Operators | str = "no kernel trace was taken"  # text: why they were not measured
    experiments: Experiments = field(default_factory=Experiments)  # steps after the window
    debug_code: Mapping[str, DebugCode] = field(default_factory=dict)  # in the window's stack samples, by kind
    compiling: Compiling | str | None = None  # text: why it was not measured; None: nothing was compiled
    last_steps: LastSteps = field(default_factory=LastSteps)  # on kept batches; and the loader alone
    padding: Padding | str | None = None  # in batches after the window; text: why it is not known; None: there is none
    repeated_weight: RepeatedWeight | None = None  # in steps after the window
    repeated_rows: RepeatedRows | None = None  # the same
    taking_lines: tuple[SliceLine, ...] = ()  # the same; that take parts of tensors with gradients
    writing_lines: tuple[SliceLine, ...] = ()  # the same; that write into parts of tensors
    repeated_work: RepeatedWork | str | None = None  # in one step after the window; text: why none was looked at
    discarded_gradients: DiscardedGradients | str | None = None  # in steps after the window; text and None as above
    unused_gradients: UnusedGradients | str | None = None  # in steps after the window; text and None as above
    stepwise_layers: tuple[StepwiseLayer, ...] = ()  # in a step after the window
    unmerged_layers: tuple[UnmergedLayers, ...] = ()  # the same
    spanning_kernels: tuple[SpanningKernels, ...] = ()  # the same
    unfused_functions: tuple[UnfusedFunctions, ...] = ()  # the same
    coordinate_products: tuple[CoordinateProducts, ...] = ()  # the same
    gathered_weights: tuple[GatheredWeights, ...] = ()  # the same
    stepwise_products: tuple[StepwiseProducts, ...] = ()  # the same
    model_layouts: tuple[ModelLayouts, ...] = ()  # the same
    unfused_attention: tuple[UnfusedAttention, ...] = ()  # the same
    broadcast_pairs: tuple[BroadcastPairs, ...] = ()  # the same
    read_values: ReadValues | None = None  # in one step after the window; None: there are none, or nobody looked
    frozen_modules: FrozenModules | None = None  # that compute in the steps after the window, and do not train
    iterates_loader: bool = False  # the training process takes batches of a DataLoader, not to validate
    called_functions: dict[str, list[CalledFunction]] = field(default_factory=dict)  # account -> functions
    input_functions: tuple[InputFunction, ...] = ()  # of input without a DataLoader, the outermost first
    by_recipe: bool = False  # the command is `flatout train`: its settings are keys of a recipe

    @property
    def gpu_room_bytes(self) -> int | None:
        """The memory of the GPU without what other processes hold there; None: not known."""
        total, shared = self.usage.gpu_memory_total_bytes, self.usage.gpu_shared
        return total if total is None or shared is None else max(total - shared.memory_bytes, 0)

    @property
    def gpu_needed_bytes(self) -> int | None:
        """The most that the driver saw in use, less what PyTorch held beyond its tensors; None: not measured."""
        used = self.usage.gpu_memory_used_bytes
        held, tensors = self.process.memory_reserved, self.process.memory_allocated
        if used is None or held is None or tensors is None:
            return used
        return max(used - max(held - tensors, 0), 0)

    @property
    def waiter(self) -> str:
        """The subject that waits for batches, as sentences name it."""
        return "GPU" if self.uses_gpu else "training"

    def confidence(self, full: float) -> float:
        """Lower ``full`` where few batches or steps carry the evidence."""
        seen = self.loading.delivery.batches if self.loading else self.ledger.steps.count
        return round(full * min(1.0, 0.5 + 0.5 * seen / THIN_BATCHES), 2)

    def seconds(self, *accounts: str) -> float:
        """Seconds of the window in these accounts; accounts that are absent add nothing."""
        found = (self.ledger.account(id) for id in accounts)
        return sum(account.seconds for account in found if account)

    def called(self, account: str) -> tuple[CalledFunction, ...]:
        """The functions that the loop calls in an account, most time first."""
        return tuple(self.called_functions.get(account, ()))

    def lines(self, account: str, count: int = 3) -> tuple[Line, ...]:
        """Hottest lines of an account, or else of its parts."""
        found = self.ledger.account(account)
        return _hottest(found)[:count] if found else ()


def _hottest(account: Account) -> tuple[Line, ...]:
    if account.lines or not account.children:
        return account.lines
    seconds: dict[tuple[str, int], float] = {}
    lines: dict[tuple[str, int], Line] = {}
    for line in (line for child in account.children for line in _hottest(child)):
        seconds[line.file, line.line] = seconds.get((line.file, line.line), 0.0) + line.seconds
        lines.setdefault((line.file, line.line), line)
    ranked = sorted(seconds, key=lambda place: -seconds[place])
    return tuple(replace(lines[place], seconds=seconds[place]) for place in ranked)
