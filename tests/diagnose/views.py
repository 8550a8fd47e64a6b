"""Hand-made views: the costs of a batch in, a consistent ledger and loader out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from flatout.measure.compiling import Break, Compiling, Recompiled
from flatout.measure.experiments import Tried
from flatout.measure.frozen_modules import FrozenModule, FrozenModules
from flatout.measure.full_sorts import FullSorts
from flatout.measure.gradients import DiscardedGradients, DiscardingLine, UnusedGradients
from flatout.measure.graphs import GraphCalls
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
from flatout.measure.loader_stats import (
    Delivery,
    FetchTimes,
    FunctionShares,
    LoaderSettings,
    LoaderStats,
    StorageReads,
    WorkerLives,
)
from flatout.measure.measured_run import MeasuredRun, Process, Usage
from flatout.measure.operators import Operators
from flatout.measure.padding import Padding
from flatout.measure.read_values import ReadValues
from flatout.measure.repeated_rows import RepeatedRows
from flatout.measure.repeated_weights import RepeatedWeight
from flatout.measure.slice_gradients import SliceGradients
from flatout.measure.slice_writes import SliceWrites
from flatout.measure.slow_kernels import SlowKernel, SlowKernels
from flatout.measure.stepwise_layers import StepwiseLayer
from flatout.results import Account, Ledger, Line, Steps

BATCHES = 200
SAMPLES = 32  # in a batch
LINE = Line("train.py", 12, "load", "image = decode(path)", 1.0)


def spread(mean: float, count: int = BATCHES, relative: float = 0.1) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Positive values around a mean, always the same ones."""
    noise = np.random.default_rng(7).uniform(1 - relative, 1 + relative, count)
    return np.asarray(mean * noise / noise.mean(), dtype=np.float64)


def make_ledger(accounts: dict[str, float], batches: int = BATCHES, lines: dict[str, Line] | None = None) -> Ledger:
    """A ledger whose window is the sum of its accounts (seconds)."""
    window = sum(accounts.values())
    listed = tuple(
        Account(id, id.replace("_", " "), s, s / window, lines=(lines[id],) if lines and id in lines else ())
        for id, s in sorted(accounts.items(), key=lambda item: -item[1])
        if s > 0
    )
    step = window / batches
    steps = Steps(batches, batches * SAMPLES, step, step, step, step, batches * SAMPLES / window, 1.0)
    return Ledger(window + 2, 1.0, (), window, listed, 0.0, 1.0, (), steps)


# Groups of the loader's numbers -> keyword here -> field there.
FIELDS: dict[str, dict[str, str]] = {
    "settings": {field.name: field.name for field in fields(LoaderSettings)},
    "fetch": {f"fetch_{name}": name for name in ("cpu_s", "runqueue_s", "blocked_s", "process_cpu_s")}
    | {"fetch_s": "wall_s", "collate_s": "collate_s", "item_s": "item_s", "transforms": "transforms"},
    "delivery": {field.name: field.name for field in fields(Delivery)},
    "workers": {"worker_idle_share": "idle_share", "worker_start_s": "start_s"}
    | {"worker_starts_in_window": "starts_in_window", "first_fetch": "first_fetch"}
    | {"pass_first_fetch": "pass_first_fetch"},
    "storage": {field.name: field.name for field in fields(StorageReads)},
    "functions": {field.name: field.name for field in fields(FunctionShares)},
}
GROUP_OF = {name: group for group, names in FIELDS.items() for name in names}


def change_loader(loading: LoaderStats, **changes: Any) -> LoaderStats:
    """The loader with other numbers, named as ``make_loading`` names them."""
    for name, value in changes.items():
        group = GROUP_OF[name]
        loading = replace(loading, **{group: replace(getattr(loading, group), **{FIELDS[group][name]: value})})
    return loading


def with_loader(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with other numbers of its loader, named as ``make_loading`` names them."""
    assert view.loading is not None
    return replace(view, loading=change_loader(view.loading, **changes))


def make_loading(wait: float, step: float, **given: Any) -> LoaderStats:
    """A loader; ``cpu``, ``runqueue`` and ``blocked`` are the parts of a fetch in seconds, None when not measured.

    Any other keyword is one of ``FIELDS``.
    """
    cpu, runqueue, blocked = given.pop("cpu", 0.0), given.pop("runqueue", 0.0), given.pop("blocked", 0.0)
    fetch = given.pop("fetch", None) or sum(part or 0.0 for part in (cpu, runqueue, blocked))
    usual = LoaderStats(
        settings=LoaderSettings(
            num_workers=1,
            batch_size=SAMPLES,
            prefetch_factor=2,
            persistent_workers=True,
            pin_memory=False,
            start_method="fork",
            site="train.py:30",
        ),
        fetch=FetchTimes(
            wall_s=spread(fetch),
            cpu_s=None if cpu is None else spread(cpu),
            runqueue_s=None if runqueue is None else spread(runqueue),
            blocked_s=None if blocked is None else spread(blocked),
            process_cpu_s=None if cpu is None else spread(cpu),
            collate_s=spread(fetch * 0.02),
            item_s=spread(fetch / SAMPLES),
            transforms=(),
        ),
        delivery=Delivery(
            batches=BATCHES,
            samples=BATCHES * SAMPLES,
            batch_bytes=1_000_000,
            epochs_started=2,
            wait_s=spread(wait),
            whole_step_s=spread(step),
            serialize_s=spread(0.0),
            deserialize_s=spread(0.0),
        ),
        workers=WorkerLives(idle_share=0.0, start_s=np.array([0.1]), starts_in_window=0),
        storage=StorageReads(bytes_read_per_sample=1e5, uncached_bytes_per_sample=0.0, mounts={}, peers=()),
        functions=FunctionShares(
            cpu_groups={"decode": 0.7, "transform": 0.2, "other": 0.1},
            blocked_groups={"other": 1.0},
            cpu_lines=(LINE,),
            blocked_lines=(),
        ),
        not_measured=(),
    )
    return change_loader(usual, **given)


def make_view(
    *,
    wait: float,
    busy: dict[str, float],
    cores: float | None = 8,
    main_cores: float | None = 0.1,
    usage: dict[str, Any] | None = None,
    process: dict[str, Any] | None = None,
    uses_gpu: bool | None = False,
    batches: int = BATCHES,
    lines: dict[str, Line] | None = None,
    gaps: dict[str, float] | None = None,
    **loader: Any,
) -> MeasuredRun:
    """A run of ``batches`` steps: seconds of one step waited and in each busy account, ``gaps`` in the whole window."""
    accounts = {id: s * batches for id, s in {"batch_wait": wait, **busy}.items()} | (gaps or {})
    loading = make_loading(wait, wait + sum(busy.values()), batches=batches, samples=batches * SAMPLES, **loader)
    return MeasuredRun(
        ledger=make_ledger(accounts, batches, lines),
        loading=loading,
        cores=cores,
        process=Process(**({"threads": 1} | (process or {}))),
        usage=Usage(**({"main_cores": main_cores} | (usage or {}))),
        uses_gpu=uses_gpu,
    )


COMPUTE = {"forward": 0.003, "backward": 0.006, "optimizer": 0.001}  # a step of 10 ms


def tried(gain: float, low: float | None = None) -> Tried:
    """A change in 7 blocks of 8 steps of 31 ms, which take this part less time with it."""
    return Tried(7, 8, 0.031, 0.031 * (1 - gain), gain, 0.8 * gain if low is None else low)


def starved(**changes: Any) -> MeasuredRun:
    """One worker, 50 ms of CPU for a batch, 8 cores, a step of 10 ms: it needs 5 workers."""
    given: dict[str, Any] = {"wait": 0.040, "busy": COMPUTE, "cpu": 0.050}
    return make_view(**(given | changes))


def saturated(**changes: Any) -> MeasuredRun:
    """Two workers on two full cores, nothing else to run them on."""
    given = {"wait": 0.016, "busy": COMPUTE, "cpu": 0.050, "runqueue": 0.002, "num_workers": 2, "cores": 2}
    return make_view(**(given | changes))


def remote(**changes: Any) -> MeasuredRun:
    """Four workers whose fetches sleep on the network, 85% of 200 ms, as measured on a planted remote store."""
    given: dict[str, Any] = {
        "wait": 0.040,
        "busy": COMPUTE,
        "cpu": 0.026,
        "runqueue": 0.004,
        "blocked": 0.170,
        "num_workers": 4,
        "blocked_groups": {"network": 0.95, "other": 0.05},
        "peers": ("10.0.0.7:443",),
        "mounts": {"/data (nfs)": 1.0},
    }
    return make_view(**(given | changes))


def healthy(**changes: Any) -> MeasuredRun:
    """Workers keep up: the model computes 97% of the time."""
    given: dict[str, Any] = {"wait": 0.0003, "busy": COMPUTE, "cpu": 0.020, "num_workers": 4, "worker_idle_share": 0.5}
    return make_view(**(given | changes))


def crowded(**changes: Any) -> MeasuredRun:
    """16 workers of 8 threads on 2 cores: 5% on a core, 57% in the run queue, 38% blocked at barriers."""
    given: dict[str, Any] = {
        "wait": 0.090,
        "busy": COMPUTE,
        "cpu": 0.080,
        "runqueue": 0.912,
        "blocked": 0.608,
        "num_workers": 16,
        "cores": 2,
        "process": {"worker_threads": 8},
        "fetch_process_cpu_s": spread(0.190),
        "blocked_groups": {"lock": 0.2, "other": 0.8},
        "transforms": (),
        "cpu_groups": {"transform": 1.0},
    }
    return make_view(**(given | changes))


def silent(**changes: Any) -> MeasuredRun:
    """The training waits, and no fetch was recorded: nothing says why."""
    nothing = np.zeros(0)
    given: dict[str, Any] = {"wait": 0.040, "busy": COMPUTE, "num_workers": 4, "cpu": 0.002}
    view = make_view(**(given | changes))
    parts = dict.fromkeys(("fetch_s", "fetch_cpu_s", "fetch_runqueue_s", "fetch_blocked_s", "item_s"), nothing)
    return with_loader(view, **parts, collate_s=nothing, cpu_groups={}, blocked_groups={})


def locked(**changes: Any) -> MeasuredRun:
    """Four workers that take turns at one lock: 97% blocked."""
    given: dict[str, Any] = {
        "wait": 0.040,
        "busy": COMPUTE,
        "cpu": 0.002,
        "runqueue": 0.004,
        "blocked": 0.194,
        "num_workers": 4,
        "blocked_groups": {"lock": 0.96, "read": 0.04},
    }
    return make_view(**(given | changes))


def without_workers(**changes: Any) -> MeasuredRun:
    """The training process spends 40 of 50 ms on fetching."""
    given: dict[str, Any] = {"wait": 0.040, "busy": COMPUTE, "cpu": 0.040, "num_workers": 0, "main_cores": 1.0}
    return make_view(**(given | changes))


def idle_worker(**changes: Any) -> MeasuredRun:
    """A worker that fetches for 1 ms and hands over for 5 ms, beside a step of 10 ms."""
    given = {"wait": 0.005, "busy": COMPUTE, "cpu": 0.001, "deserialize_s": spread(0.005), "worker_idle_share": 0.9}
    view = make_view(**(given | changes))
    window_s = view.ledger.window_s
    received = Account("batch_wait.ipc", "transferring", 0.005 * BATCHES, 0.005 * BATCHES / window_s)
    accounts = tuple(
        replace(account, children=(received,)) if account.id == "batch_wait" else account
        for account in view.ledger.accounts
    )
    return replace(view, ledger=replace(view.ledger, accounts=accounts))


def small_operators(overhead_s: float, **changes: Any) -> Operators:
    """Operators of the step of 10 ms, of which this much passes around their kernels."""
    usual = Operators(
        count=2000,
        median_s=2e-6,
        reference_s=1e-6,
        computed_s=0.010,
        overhead_s=overhead_s,
        kernels_s=0.010 - overhead_s,
        pointwise_s=0.5 * (0.010 - overhead_s),
        wide_s=0.0,
        saved_by_float32_s=0.0,
        conversions=0.0,
        conversions_s=0.0,
        float64_factor=2.0,
        on_device=False,
    )
    return replace(usual, **changes)


SLICES = SliceGradients((64, 168, 48), 1, 168, 0.004)  # of operators that take 10 ms a step
SGD = {"optimizer": "SGD"}
MASKS, BCE = SlowKernel(5_120_000, 0.004, 1.0, 0.25), SlowKernel(250_000, 0.004, 1.0, 0.25)
SORTS = FullSorts((16, 512, 2048), 2, 16, 0.004)
ROWS = RepeatedRows(0.6, 18, 81.0, (Line("/home/me/model.py", 82, "forward", "", 0.004),))
WRITES = SliceWrites((50, 64, 9_000), 50, 0.004, calls=0.2)


def compiled_again(seconds: float, **changes: Any) -> Compiling:
    """A function is compiled again 7 times in the window, which takes this many seconds a batch."""
    reason = "tensor 'x' size mismatch at index 1. expected 64, actual 71"
    line = replace(LINE, seconds=seconds * BATCHES)
    one = Recompiled(line, times=7, reasons=(reason,), limited=False, repeated=True, late=True)
    return Compiling(seconds * BATCHES, (replace(one, **changes),), (), "no graph breaks")


def in_pieces(part: float, count: int = 24) -> Compiling:
    """A model with so many graph breaks, and this part of the forward pass between its pieces."""
    return Compiling(0.0, (), (Break(LINE, "Tensor.item", count),), GraphCalls(count + 1.0, 0.003 * part, part))


def padded(length: float, *rows: list[int], **changes: Any) -> Padding:
    """Batches of these rows, each padded to this length."""
    lengths = tuple(np.array(lengths, np.float64) for lengths in rows)
    return replace(Padding("input_ids", (), "mask", None, 1.0, np.full(len(rows), float(length)), lengths), **changes)


# Each of two batches has long rows and short ones; sorted, half of the positions go.
MIXED_ROWS = ([100, 100, 10, 10], [100, 100, 10, 10])


def unused(gain: float | None = 0.4, **changes: Any) -> UnusedGradients:
    """A frozen backbone's gradients, 90% of all; leaving them out saves this part of a step, None: it was not tried."""
    one = None if gain is None else tried(gain)
    return replace(UnusedGradients(900, 1000, ("Net.backbone",), one, "the model is compiled"), **changes)


def discarded(gain: float | None = 0.2, **changes: Any) -> DiscardedGradients:
    """A critic's gradients in its actor's pass, half of all; without them a step takes this part less."""
    one = None if gain is None else tried(gain)
    line = DiscardingLine("/w/train.py", 27, "main", 4, 600, 620, ("Net.critic",))
    return replace(DiscardedGradients(0.5, (line,), one, "the training ended before"), **changes)


def with_padding(view: MeasuredRun, length: int) -> MeasuredRun:
    """The run whose mixed rows are padded to a length."""
    return replace(view, padding=padded(length, *MIXED_ROWS))


def with_discarded(view: MeasuredRun) -> MeasuredRun:
    """The run with these gradients."""
    return replace(view, discarded_gradients=discarded())


def traced(view: MeasuredRun, **found: Any) -> MeasuredRun:
    """The run with what a trace of small operators showed."""
    return replace(view, operators=small_operators(0.001, **found))


def slow(view: MeasuredRun, **kernels: SlowKernel) -> MeasuredRun:
    """The run with operators that a CPU computes one element after the other."""
    return traced(view, slow=SlowKernels(**kernels))


def frozen(seconds: float = 0.004, same: bool | None = True, **changes: Any) -> FrozenModules:
    """A frozen backbone that gives 2 kB for a sample, and takes these seconds of a step."""
    found = FrozenModules(seconds, (FrozenModule("Net.backbone", seconds, 1.0, 2048.0),), same)
    return replace(found, **changes)


def with_frozen(same: bool | None) -> MeasuredRun:
    """A run with room for what such a backbone gives."""
    return replace(healthy(usage={"available_bytes": 1 << 30}), frozen_modules=frozen(same=same))


def in_numbers(view: MeasuredRun) -> MeasuredRun:
    """The run with batches of 1,024 samples of a few numbers."""
    return with_loader(view, samples=BATCHES * 1024, batch_bytes=24_000, cpu_groups={"other": 1.0})


def repeated(joined: float | None = 0.2, **changes: Any) -> RepeatedWeight:
    """A layer that a loop calls 48 times, for a value and for its slope."""
    return replace(RepeatedWeight("Critic.2.weight", (512, 512), 96, 2, 1.0, joined), **changes)


def stepwise(view: MeasuredRun) -> MeasuredRun:
    """The run with a recurrent layer of 96 calls that take half of a step; one call takes a quarter of that."""
    return replace(view, stepwise_layers=(StepwiseLayer("Net.lstm", "LSTM", 96, 5e-5, 0.25, 0.2, 0.3),))


# Of a step of 10 ms; one layer takes a quarter of 2 ms, twice.
HEADS = UnmergedLayers(
    2, (1280, 512), 0.002, 0.25, 0.2, 0.3, (Line("/code/net.py", 9, "forward", "", 0.0),), operator="addmm", layers=8
)
KERNELS = SpanningKernels(3, (64, 1, 50, 300), 0.002, 0.6, 0.55, 0.65, HEADS.lines, kernel=(100, 1, 3, 300))
GRAPH = CoordinateProducts(
    1, (500, 64), 0.006, 0.2, 0.15, 0.3, HEADS.lines, products=3, matrix=(500, 500), values=9_000
)
EDGES = GatheredWeights(2, (15_000, 100), 0.003, 0.2, 0.15, 0.3, HEADS.lines, matrix=(100, 100), matrices=474)
WORDS = StepwiseProducts(1, (8, 256), 0.006, 0.2, 0.15, 0.3, HEADS.lines, products=100, weight=(256, 50_000))
PIXELS = ModelLayouts(1, (32, 3, 32, 32), 0.008, 0.5, 0.45, 0.55, (), name="ResNet", layout="channels_last")
HEADS_BY_HAND = UnfusedAttention(
    2, (32, 256, 64), 0.003, 0.2, 0.15, 0.3, HEADS.lines, keys=200, masked=True, dropout=True
)
COSINES = BroadcastPairs(
    1, (256, 512, 64), 0.006, 0.2, 0.15, 0.3, HEADS.lines, kind="cosines", left=(256, 1, 64), right=(1, 512, 64)
)
GELU = UnfusedFunctions(
    3,
    (64, 50, 512),
    0.002,
    0.3,
    0.25,
    0.35,
    (Line("/code/net.py", 5, "GELU.forward", "", 0.0),),
    name="gelu",
    code="F.gelu(x)",
)


def unmerged(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with eight heads of one input, twice in each step of 10 ms."""
    return replace(view, unmerged_layers=(replace(HEADS, **changes),))


def spanning(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with three convolutions of one channel that take 6 ms of each step."""
    return replace(view, spanning_kernels=(replace(KERNELS, **changes),))


def in_coordinates(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with products of a graph that take 6 ms of each step."""
    return replace(view, coordinate_products=(replace(GRAPH, **changes),))


def gathered(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with a matrix for each row, which takes 6 ms of each step."""
    return replace(view, gathered_weights=(replace(EDGES, **changes),))


def reported(view: MeasuredRun, part: float = 0.4) -> MeasuredRun:
    """The run with passes of each step whose result is only read."""
    return replace(view, read_values=ReadValues(part, (Line("/code/train.py", 76, "train", "", 0.004),)))


def of_pixels(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with a model that takes 8 ms of each step, and half as much in channels_last."""
    process = replace(view.process, convolutions=2, channels_last=False)
    return replace(view, process=process, model_layouts=(replace(PIXELS, **changes),))


def by_hand(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with attention of two products that takes 6 ms of each step."""
    return replace(view, unfused_attention=(replace(HEADS_BY_HAND, **changes),))


def in_pairs(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with cosines of all pairs that take 6 ms of each step."""
    return replace(view, broadcast_pairs=(replace(COSINES, **changes),))


def in_a_loop(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with products of an output layer that take 6 ms of each step."""
    return replace(view, stepwise_products=(replace(WORDS, **changes),))


Runs = tuple[Callable[[], MeasuredRun], Callable[[], MeasuredRun]]


def with_and_starved(change: Callable[[MeasuredRun], MeasuredRun], computes: MeasuredRun | None = None) -> Runs:
    """A fault in a run that computes, and in one that waits for batches."""
    return lambda: change(computes or healthy()), lambda: change(starved())


def unfused(view: MeasuredRun, **changes: Any) -> MeasuredRun:
    """The run with three calls of a GELU that take 6 ms of each step."""
    return replace(view, unfused_functions=(replace(GELU, **changes),))


def same_samples(view: MeasuredRun, same: bool | None = True) -> MeasuredRun:
    """The run with 10,000 samples that were the same when they were asked for twice, and room for them."""
    changed = replace(view, last_steps=replace(view.last_steps, same_samples=same))
    changed = replace(changed, usage=replace(changed.usage, available_bytes=1 << 34))
    loading = changed.loading
    assert loading is not None
    settings = replace(loading.settings, collates=True, dataset_len=10_000)
    return replace(changed, loading=replace(loading, settings=settings))


def in_turn(view: MeasuredRun) -> MeasuredRun:
    """The run with a layer that is called on one input after the other."""
    return replace(view, repeated_weight=repeated(), operators=small_operators(0.006))
