"""For each remedy, a run in which it helps and one in which it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flatout.measure.called_functions import CalledFunction
from flatout.measure.crowding import Crowding
from flatout.measure.debug_code import DebugCode
from flatout.measure.dense_gradients import DenseGradients
from flatout.measure.experiments import Experiments
from flatout.measure.fusion import Fusible
from flatout.measure.input_functions import InputFunction
from flatout.measure.loader_stats import ArrayReads, TransformCost
from flatout.measure.lock_waits import LockWaits
from flatout.measure.makers import Makers
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.needless_logits import NeedlessLogits
from flatout.measure.page_faults import PageFaults
from flatout.measure.ranks import Ranks
from flatout.measure.repeated_work import RepeatedLine, RepeatedWork
from flatout.measure.slow_samples import SlowSamples
from flatout.measure.validation import ValidationCalls
from flatout.measure.zero_operands import ZeroOperands
from flatout.results import Account, Line
from tests.diagnose import views
from tests.diagnose.views import (
    BATCHES,
    BCE,
    COMPUTE,
    LINE,
    MASKS,
    ROWS,
    SAMPLES,
    SGD,
    SLICES,
    SORTS,
    WRITES,
    Runs,
    compiled_again,
    crowded,
    healthy,
    idle_worker,
    in_numbers,
    in_pieces,
    in_turn,
    locked,
    make_ledger,
    make_view,
    remote,
    reported,
    same_samples,
    saturated,
    slow,
    small_operators,
    spread,
    starved,
    stepwise,
    traced,
    tried,
    unused,
    with_and_starved,
    with_discarded,
    with_frozen,
    with_loader,
    with_padding,
    without_workers,
)

TWICE = RepeatedWork(0.3, 0.5, (RepeatedLine("/home/me/train.py", 12, "step", "", "mm", 0.003, 35),))
GPU = {"param_dtype": "float32", "capability": 8.6, "tf32": False, "convolutions": 2, "channels_last": False}
GPU |= {"cudnn_benchmark": False, "compiled": False}
CALLED: dict[str, Any] = {
    "batch_bytes": 1 << 20,
    "called": (
        InputFunction("/home/me/data.py", "Photos.__getitem__", 1.0, 1.0, (0.9, 0.0), 1.0),
        InputFunction("/home/me/data.py", "Photos.load", 0.9, 0.0, (0.0, 0.0), 2.0),
    ),
}
REPORTS = {"host_other": [CalledFunction("/home/me/train.py", "Journal.write", 0.008 * BATCHES)]}
PHOTOS: dict[str, Any] = {
    "arrays": ArrayReads("PIL", 12e6, 12e6, 0.05, 1, volumes=False),
    "layout": (f"float32 [{SAMPLES}, 3, 224, 224]",),
    "batch_bytes": 1 << 20,
}
METRICS = {"metrics": [CalledFunction("/venv/site-packages/torchmetrics/metric.py", "Metric.forward", 0.006 * BATCHES)]}
SAVES = {"checkpoint": [CalledFunction("/home/me/train.py", "save", 0.9)]}
EARLY_JITTER = (TransformCost("ColorJitter", 0.008, 1e5, 1e5), TransformCost("RandomCrop", 0.0005, 1e5, 1e4))
JITTERED = (EARLY_JITTER[0], TransformCost("RandomHorizontalFlip", 0.0005, 1e5, 1e5))
SAME_EACH_TIME = (TransformCost("ToTensor", 0.004, 800, 800), TransformCost("Normalize", 0.001, 800, 800))
LOGITS = NeedlessLogits(50_000, 1_024, 0.85, 4_000, 0.002, 0.003)
ZEROS = ZeroOperands((4_096, 4_096), 0.002, 0.003, 0.0)
ASKED_FOR = {"memory": {"huge_pages": "madvise"}}
EXPERIMENTS = Experiments(
    tried={"anomaly_mode": tried(0.6), "deterministic": tried(0.2), "threads=1": tried(0.3)},
    hooks=(LINE,),
    hooks_share=0.4,
    collector_share=0.3,
    collections=1.0,
    steps=56,
)
CHECKS = {"assertions": DebugCode(0.4, LINE)}
RANKS = Ranks(4, 100, 2, 0, 0.9, 0.3, "waits for batches", 0.05, 0.001)
TRANSFORMS: dict[str, Any] = {"cpu_groups": {"transform": 0.9, "decode": 0.1}, "item_s": spread(0.010)}
PATCH = ("float32 [32, 1, 64, 64, 64]", "int64 [32, 64, 64, 64]")
WHOLE_VOLUMES: dict[str, Any] = {
    "layout": PATCH,
    "arrays": ArrayReads("tifffile", 2 * 256**3, 2 * 256**3, 0.5, 2, True),
}
PREPARED = (TransformCost("monai.LoadImaged", 0.004, 0, 0, repeats=True),)
SEVERAL_PASSES: dict[str, Any] = {
    "epochs_started": 2,
    "dataset_len": 10_000,
    "bytes_read_per_sample": 20_000.0,
    "usage": {"available_bytes": 8 << 30},
}
TURNED = Line("/home/me/data.py", 9, "__getitem__", "patch = ndimage.rotate(patch, angle, axes=(1, 2))", 1000.0)
SPLINES: dict[str, Any] = {"packages": {"transform": "scipy"}, "lines_of_group": {"transform": (TURNED,)}}
LOOKUPS: dict[str, Any] = {"cpu_groups": {"lookup": 0.8, "decode": 0.2}, "packages": {"lookup": "pandas"}}
TABLES: dict[str, Any] = {
    "cpu_groups": {"decode": 0.9, "other": 0.1},
    "packages": {"decode": "pandas"},
    "usage": {"available_bytes": 8 << 30},
    "epochs_started": 2,
}
TEXTS: dict[str, Any] = {**TABLES, "packages": {"decode": "json"}}
STREAM: dict[str, Any] = {"cpu_groups": {"decode": 0.9, "other": 0.1}, "files_per_sample": 12.0, "dataset_len": None}
CHUNKS: dict[str, Any] = {
    "cpu_groups": {"read": 0.8, "other": 0.2},
    "packages": {"read": "h5py"},
    "usage": {"available_bytes": 8 << 30},
}
RESTARTED: dict[str, Any] = {"persistent_workers": False, "worker_starts_in_window": 8, "start_method": "spawn"}
CROWDING = Crowding(6.0, 1.0, 0.3, ())
LOCK = LockWaits(0.3, "metrics", 0.9, ())
SMALL_OPERATORS = small_operators(0.006)
FUSIBLE_OPERATORS = small_operators(0.001, fusible=Fusible(0.002, 0.004, 1e8, 40.0))
LAUNCHED_OPERATORS = small_operators(0.006, on_device=True)
WIDE_OPERATORS = small_operators(0.001, wide_s=0.009, saved_by_float32_s=0.0045)
CONVERTING_OPERATORS = small_operators(0.001, conversions=24, conversions_s=0.0045)
VALUE = ("self._modules['step'] == 3",)
BUSY = {"forward": 0.002, "optimizer": 0.008}
READS = {"device_sync": 0.010}


def uneven(workers: int = 4, wait: float = 0.040) -> MeasuredRun:
    """Every eleventh fetch is blocked twelve times as long as the others, and holds them up."""
    blocked = np.full(BATCHES, 0.100)
    blocked[::11] *= 12
    run = make_view(wait=wait, busy=COMPUTE, cpu=0.001, blocked=0.200, num_workers=workers)
    groups = {"network": 1.0}
    changes: dict[str, Any] = {"fetch_s": blocked + 0.001, "fetch_blocked_s": blocked, "blocked_groups": groups}
    return with_loader(run, **changes, head_of_line_s=0.5 * wait * BATCHES)


def few_costly(run: MeasuredRun) -> MeasuredRun:
    """A twentieth of the samples takes half of the time."""
    assert run.loading is not None
    slow = SlowSamples(samples=0.05, excess=0.5, median_s=0.001, mean_s=0.02, indices=(3, 23))
    return replace(run, loading=replace(run.loading, fetch=replace(run.loading.fetch, slow=slow)))


def dense(optimizer: str, seconds: float = 0.004) -> MeasuredRun:
    """Gradients of a whole table take this long a step."""
    run = replace(healthy(), operators=small_operators(0.001, dense=DenseGradients(((250_000, 64),), 1_024, seconds)))
    return replace(run, process=replace(run.process, optimizer=optimizer))


def without_loader(**accounts: float) -> MeasuredRun:
    return MeasuredRun(ledger=make_ledger(accounts), loading=None, cores=4)


def own_input(group: str) -> MeasuredRun:
    """The training makes its own input, most of it in functions of this group."""
    run = without_loader(forward=0.6, batch_wait=0.4)
    part = Account(f"batch_wait.fetch_cpu.{group}", group, 0.4, 0.4)
    whole = Account("batch_wait.fetch_cpu", "computing", 0.4, 0.4, (part,))
    accounts = [replace(a, children=(whole,)) if a.id == "batch_wait" else a for a in run.ledger.accounts]
    return replace(run, ledger=replace(run.ledger, accounts=tuple(accounts)))


def awaiting_makers(makers: Makers, cores: float) -> MeasuredRun:
    """The training waits 40% of the time for processes of its own."""
    run = own_input("transform")
    made = Account("batch_wait.producer", "made by others", 0.4, 0.4)
    accounts = [replace(a, children=(made,)) if a.id == "batch_wait" else a for a in run.ledger.accounts]
    ledger = replace(run.ledger, accounts=tuple(accounts))
    return replace(run, ledger=ledger, cores=cores, usage=replace(run.usage, makers=makers, main_cores=0.4))


def fetching_in_vain(**changes: Any) -> MeasuredRun:
    """Workers keep up with the training, whatever they do: the training waits for nothing."""
    given: dict[str, Any] = {"blocked": 0.010, "blocked_groups": {"read": 0.5, "lock": 0.5}, "epochs_started": 3}
    return healthy(**(given | {"usage": {"available_bytes": 8 << 30, "main_cores": 0.1}} | changes))


def starved_gpu(**changes: Any) -> MeasuredRun:
    """The training waits for batches 80% of the time: no faster step helps."""
    return starved(**({"uses_gpu": True, "process": GPU} | changes))


# id -> (a run that it helps, a run that it cannot help)
def in_products(zeros: ZeroOperands) -> MeasuredRun:
    return replace(healthy(), operators=replace(SMALL_OPERATORS, zeros=zeros))


RUNS: dict[str, Runs] = {
    "num_workers": (starved, fetching_in_vain),
    "prefetch_factor": (uneven, fetching_in_vain),
    "queue_settings": (uneven, fetching_in_vain),
    "in_order": (uneven, fetching_in_vain),
    "shorter_samples": (
        lambda: few_costly(starved(cpu=0.100, blocked=0.001)),
        lambda: few_costly(fetching_in_vain()),
    ),
    "persistent_workers": (
        lambda: healthy(**RESTARTED, gaps={"epoch_boundary": 1.0}),
        lambda: healthy(**RESTARTED, gaps={}),
    ),
    "start_method": (
        lambda: healthy(**RESTARTED, gaps={"epoch_boundary": 1.0}),
        lambda: healthy(**RESTARTED, gaps={}),
    ),
    "fewer_workers": (crowded, lambda: healthy(num_workers=1)),
    "worker_threads": (crowded, lambda: fetching_in_vain(process={"worker_threads": 8})),
    "without_workers": (idle_worker, starved),
    "local_copy": (remote, fetching_in_vain),
    "cache_files": (
        lambda: remote(epochs_started=3, cpu_groups={"decode": 1.0}, usage={"available_bytes": 8 << 30}),
        fetching_in_vain,
    ),
    "chunk_cache": (lambda: saturated(**CHUNKS), lambda: starved(**CHUNKS | {"packages": {"read": "zarr"}})),
    "mapped_arrays": (
        lambda: remote(
            bytes_read_per_sample=20e6,
            batch_bytes=SAMPLES * 100_000,
            arrays=ArrayReads("numpy", 5e6, 20e6, 0.1, 1, False),
        ),
        lambda: remote(
            bytes_read_per_sample=1e5,
            batch_bytes=SAMPLES * 100_000,
            arrays=ArrayReads("numpy", 25e3, 1e5, 0.1, 1, False),
        ),
    ),
    "chunked_reading": (
        lambda: remote(bytes_read_per_sample=20e6, batch_bytes=SAMPLES * 100_000),
        lambda: fetching_in_vain(bytes_read_per_sample=20e6, batch_bytes=SAMPLES * 100_000),
    ),
    "staged_volumes": (lambda: starved(**WHOLE_VOLUMES), lambda: fetching_in_vain(**WHOLE_VOLUMES)),
    "device_augmentation": (
        lambda: starved_gpu(**TRANSFORMS, **WHOLE_VOLUMES),
        lambda: fetching_in_vain(**TRANSFORMS, **WHOLE_VOLUMES, uses_gpu=True, process=GPU),
    ),
    "faster_decode": (saturated, fetching_in_vain),
    "smaller_files": (lambda: saturated(**PHOTOS), lambda: fetching_in_vain(**PHOTOS)),
    "decoded_once": (lambda: saturated(**SEVERAL_PASSES), lambda: fetching_in_vain(**SEVERAL_PASSES)),
    "prepared_once": (
        lambda: saturated(**SEVERAL_PASSES, **TRANSFORMS, transforms=PREPARED),
        lambda: fetching_in_vain(**SEVERAL_PASSES, **TRANSFORMS, transforms=PREPARED),
    ),
    "tables_once": (lambda: saturated(**TABLES), lambda: fetching_in_vain(**TABLES)),
    "texts_once": (lambda: saturated(**TEXTS), lambda: fetching_in_vain(**TEXTS)),
    "select_first": (
        lambda: saturated(**STREAM),
        lambda: fetching_in_vain(**STREAM),
    ),
    "samples_memoized": (
        lambda: saturated(**SEVERAL_PASSES, **CALLED),
        lambda: fetching_in_vain(**SEVERAL_PASSES, **CALLED),
    ),
    "crop_first": (
        lambda: saturated(**TRANSFORMS, transforms=EARLY_JITTER),
        lambda: fetching_in_vain(**TRANSFORMS, transforms=EARLY_JITTER),
    ),
    "late_normalize": (
        lambda: saturated(**TRANSFORMS, transforms=SAME_EACH_TIME),
        lambda: fetching_in_vain(**TRANSFORMS, transforms=SAME_EACH_TIME),
    ),
    "cheaper_transform": (
        lambda: saturated(**TRANSFORMS, transforms=JITTERED),
        lambda: fetching_in_vain(**TRANSFORMS, transforms=JITTERED),
    ),
    "whole_batches": (lambda: in_numbers(without_workers()), lambda: in_numbers(fetching_in_vain())),
    "samples_once": (lambda: same_samples(saturated()), lambda: same_samples(fetching_in_vain())),
    "stored_samples": (lambda: saturated(**TRANSFORMS), lambda: fetching_in_vain(**TRANSFORMS)),
    "transformed_once": (
        lambda: saturated(**TRANSFORMS, transforms=SAME_EACH_TIME),
        lambda: fetching_in_vain(**TRANSFORMS, transforms=SAME_EACH_TIME),
    ),
    "smaller_samples": (
        lambda: saturated(wait=0.020, collate_s=np.full(BATCHES, 0.045), batch_bytes=50_000_000),
        fetching_in_vain,
    ),
    "faster_collate": (
        lambda: starved(collate_s=np.full(BATCHES, 0.040), batch_bytes=100_000),
        lambda: fetching_in_vain(collate_s=np.full(BATCHES, 0.020)),
    ),
    "own_handles": (locked, fetching_in_vain),
    "linear_interpolation": (
        lambda: saturated(**TRANSFORMS, **SPLINES),
        lambda: fetching_in_vain(**TRANSFORMS, **SPLINES),
    ),
    "columns_as_arrays": (lambda: saturated(**LOOKUPS), lambda: fetching_in_vain(**LOOKUPS)),
    "tokenise_once": (
        lambda: saturated(cpu_groups={"tokenise": 0.9, "other": 0.1}),
        lambda: fetching_in_vain(cpu_groups={"tokenise": 0.9, "other": 0.1}),
    ),
    "cheaper_reads": (
        lambda: saturated(cpu_groups={"read": 0.9, "other": 0.1}),
        lambda: fetching_in_vain(cpu_groups={"read": 0.9, "other": 0.1}),
    ),
    "more_makers": (
        lambda: awaiting_makers(Makers(4, 3.9, 0.0, 1 << 30), cores=16),
        lambda: awaiting_makers(Makers(4, 3.9, 0.5, 1 << 30), cores=4),
    ),
    "cheaper_input": (lambda: own_input("decode"), lambda: own_input("other")),
    "batches_ahead": (lambda: without_loader(forward=0.6, batch_wait=0.4), lambda: without_loader(forward=1.0)),
    "work_to_workers": (
        lambda: healthy(busy=COMPUTE | {"host_other": 0.010}, cpu=0.008),
        lambda: starved(busy=COMPUTE | {"host_other": 0.010}),
    ),
    "report_less": (
        lambda: replace(healthy(busy=COMPUTE | {"host_other": 0.010}), called_functions=REPORTS),
        lambda: replace(starved(busy=COMPUTE | {"host_other": 0.010}), called_functions=REPORTS),
    ),
    "metrics_at_end": (
        lambda: replace(healthy(), called_functions=METRICS),
        lambda: replace(starved(), called_functions={}),
    ),
    "log_less": (
        lambda: healthy(busy=COMPUTE | {"logging": 0.010}),
        lambda: starved(busy=COMPUTE | {"logging": 0.010}),
    ),
    "unsynced_metrics": (
        lambda: healthy(busy=COMPUTE | {"logging": 0.002, "logging.fsync": 0.010}),
        lambda: starved(busy=COMPUTE | {"logging.fsync": 0.010}),
    ),
    "checkpoint_less": (lambda: healthy(gaps={"checkpoint": 1.0}), starved),
    "fewer_checkpoints": (
        lambda: replace(healthy(gaps={"checkpoint": 1.0}), called_functions=SAVES),
        lambda: replace(starved(), called_functions=SAVES),
    ),
    "validate_less": (lambda: healthy(gaps={"validation": 1.0}), starved),
    "validate_without_gradients": (
        lambda: replace(healthy(gaps={"validation": 1.0}), validation_calls=ValidationCalls(1.0, 1.0)),
        lambda: replace(starved(), validation_calls=ValidationCalls(1.0, 1.0)),
    ),
    "cheaper_epoch_start": (lambda: healthy(gaps={"epoch_boundary.start": 1.0, "epoch_boundary": 1.0}), healthy),
    "indices_at_once": (
        lambda: healthy(wait=0.010, indices_s=0.009 * BATCHES),
        lambda: starved(indices_s=0.005 * BATCHES),
    ),
    "fewer_blocking_reads": (
        lambda: healthy(busy=COMPUTE | READS, uses_gpu=True, usage={"device_busy_share": 0.5}),
        lambda: starved_gpu(busy=COMPUTE | READS, wait=0.030),
    ),
    "debugging_off": (
        lambda: replace(healthy(), experiments=EXPERIMENTS),
        lambda: replace(starved(), experiments=EXPERIMENTS),
    ),
    "without_debug_code": (
        lambda: replace(healthy(), debug_code=CHECKS),
        lambda: replace(starved(), debug_code=CHECKS),
    ),
    "nondeterministic": (
        lambda: replace(healthy(), experiments=EXPERIMENTS),
        lambda: replace(starved(), experiments=EXPERIMENTS),
    ),
    "fewer_hooks": (
        lambda: replace(healthy(), experiments=EXPERIMENTS),
        lambda: replace(starved(), experiments=EXPERIMENTS),
    ),
    "fewer_collections": (
        lambda: replace(healthy(), experiments=EXPERIMENTS),
        lambda: replace(starved(), experiments=EXPERIMENTS),
    ),
    "keep_memory": (
        lambda: healthy(usage={"main_faults": PageFaults(200_000, 0.5, 1.5)}),
        lambda: starved(usage={"main_faults": PageFaults(200_000, 0.5, 1.5)}),
    ),
    "huge_pages": (
        lambda: replace(healthy(usage={"main_faults": PageFaults(200_000, 0.5, 1.5)}), machine=ASKED_FOR),
        lambda: replace(starved(usage={"main_faults": PageFaults(200_000, 0.5, 1.5)}), machine=ASKED_FOR),
    ),
    "threads": (
        lambda: replace(healthy(process={"threads": 16}), experiments=EXPERIMENTS),
        lambda: replace(starved(process={"threads": 16}), experiments=EXPERIMENTS),
    ),
    "bigger_batch": (lambda: healthy(cpu=0.008, busy=BUSY), lambda: starved(busy=BUSY)),
    "gradient_accumulation": (lambda: healthy(cpu=0.008, busy=BUSY), lambda: starved(busy=BUSY)),
    "fused_optimizer": (
        lambda: healthy(cpu=0.008, busy=BUSY, process=SGD),
        lambda: starved(busy=BUSY, process=SGD),
    ),
    "mixed_precision": (lambda: healthy(uses_gpu=True, process=GPU), starved_gpu),
    "tf32": (lambda: healthy(uses_gpu=True, process=GPU), starved_gpu),
    "channels_last": (lambda: healthy(uses_gpu=True, process=GPU), starved_gpu),
    "compile_model": (
        lambda: replace(healthy(uses_gpu=True, process=GPU), operators=FUSIBLE_OPERATORS),
        lambda: replace(starved_gpu(), operators=FUSIBLE_OPERATORS),
    ),
    "cuda_graphs": (
        lambda: replace(healthy(uses_gpu=True, process=GPU), operators=LAUNCHED_OPERATORS),
        lambda: replace(starved_gpu(), operators=LAUNCHED_OPERATORS),
    ),
    "cudnn_benchmark": (lambda: healthy(uses_gpu=True, process=GPU), starved_gpu),
    "pin_memory": (
        lambda: healthy(uses_gpu=True, busy=COMPUTE | {"h2d": 0.004}),
        lambda: starved_gpu(busy=COMPUTE | {"h2d": 0.004}),
    ),
    "train_on_gpu": (lambda: replace(healthy(), machine={"gpus": [{"name": "A100"}]}), starved),
    "more_quota": (lambda: healthy(usage={"throttled_share": 0.2}), starved),
    "sooner_switch": (
        lambda: replace(healthy(), lock=LOCK),
        lambda: replace(healthy(process={"switch_interval_us": 500}), lock=LOCK),
    ),
    "thread_to_process": (lambda: replace(healthy(), lock=LOCK), lambda: replace(starved(), lock=LOCK)),
    "fewer_operators": (
        lambda: replace(healthy(cpu=0.008), operators=SMALL_OPERATORS),
        lambda: replace(starved(), operators=SMALL_OPERATORS),
    ),
    "float32": (
        lambda: replace(healthy(cpu=0.008), operators=WIDE_OPERATORS),
        lambda: replace(starved(), operators=WIDE_OPERATORS),
    ),
    "dynamic_shapes": (
        lambda: replace(healthy(cpu=0.008), compiling=compiled_again(0.005)),
        lambda: replace(starved(), compiling=compiled_again(0.005)),
    ),
    "fixed_shapes": (
        lambda: replace(healthy(cpu=0.008), compiling=compiled_again(0.005)),
        lambda: replace(starved(), compiling=compiled_again(0.005)),
    ),
    "steady_values": (
        lambda: replace(healthy(cpu=0.008), compiling=compiled_again(0.005, reasons=VALUE)),
        lambda: replace(starved(), compiling=compiled_again(0.005, reasons=VALUE)),
    ),
    "whole_graphs": with_and_starved(lambda view: replace(view, compiling=in_pieces(0.8)), healthy(cpu=0.008)),
    "one_layout": with_and_starved(lambda view: replace(view, operators=CONVERTING_OPERATORS), healthy(cpu=0.008)),
    "trim_padding": (lambda: with_padding(healthy(), 512), lambda: with_padding(starved(), 512)),
    "group_by_length": (lambda: with_padding(healthy(), 100), lambda: with_padding(starved(), 100)),
    "frozen_parameters": (
        lambda: replace(healthy(), unused_gradients=unused()),
        lambda: replace(starved(), unused_gradients=unused()),
    ),
    "frozen_clipped_parameters": (
        lambda: replace(healthy(), unused_gradients=unused(None, clipped=True)),
        lambda: replace(starved(), unused_gradients=unused(None, clipped=True)),
    ),
    "kept_gradients": (lambda: with_discarded(healthy()), lambda: with_discarded(starved())),
    "sparse_embeddings": (lambda: dense("SGD"), lambda: dense("Adam")),
    "sparse_optimizer": (lambda: dense("Adam"), lambda: dense("SGD")),
    "first_places": (lambda: traced(healthy(), sorts=SORTS), lambda: traced(starved(), sorts=SORTS)),
    "quick_dropout": (lambda: slow(healthy(), masks=MASKS), lambda: slow(starved(), masks=MASKS)),
    "quick_bce": (lambda: slow(healthy(), bce=BCE), lambda: slow(starved(), bce=BCE)),
    "logits_where_needed": (
        lambda: replace(healthy(), operators=replace(SMALL_OPERATORS, logits=LOGITS)),
        lambda: replace(healthy(), operators=replace(SMALL_OPERATORS, logits=replace(LOGITS, ignored=0.0))),
    ),
    "classes_that_occur": (
        lambda: replace(healthy(), operators=replace(SMALL_OPERATORS, logits=LOGITS)),
        lambda: replace(healthy(), operators=replace(SMALL_OPERATORS, logits=replace(LOGITS, used=50_000))),
    ),
    "sparse_products": (lambda: in_products(ZEROS), lambda: in_products(replace(ZEROS, nonzero=0.5))),
    "unbind": with_and_starved(lambda view: replace(view, operators=small_operators(0.001, slices=SLICES))),
    "write_at_once": with_and_starved(lambda view: replace(view, operators=small_operators(0.001, writes=WRITES))),
    "one_batch": with_and_starved(in_turn),
    "whole_sequence": with_and_starved(stepwise),
    "merge_layers": with_and_starved(views.unmerged),
    "quick_conv": with_and_starved(views.spanning),
    "csr_products": with_and_starved(views.in_coordinates),
    "sort_rows": with_and_starved(views.gathered),
    "product_after_loop": with_and_starved(views.in_a_loop),
    "fuse_attention": with_and_starved(views.by_hand),
    "pairs_by_product": with_and_starved(views.in_pairs),
    "report_in_some_steps": (lambda: reported(healthy()), lambda: reported(starved(), 0.01)),
    "fuse_functions": with_and_starved(views.unfused),
    "features_once": (lambda: with_frozen(True), lambda: with_frozen(False)),
    "split_weight": (lambda: replace(healthy(), repeated_rows=ROWS), lambda: replace(starved(), repeated_rows=ROWS)),
    "compute_once": (
        lambda: replace(healthy(), repeated_work=TWICE),
        lambda: replace(starved(), repeated_work=replace(TWICE, part=0.01, with_backward=0.02)),
    ),
    "keep_activations": (
        lambda: replace(healthy(), repeated_work=replace(TWICE, on_purpose=0.3)),
        lambda: replace(starved(), repeated_work=replace(TWICE, on_purpose=0.02)),
    ),
    "cores_of_its_own": (lambda: healthy(usage={"crowding": CROWDING}), starved),
    "even_ranks": (lambda: replace(healthy(), ranks=RANKS), lambda: replace(starved(), ranks=RANKS)),
}
# Only the interval shows a gain: what fewer turns on crowded cores give is not measured.
UNCERTAIN = {"fewer_workers"}
# What takes the time between steps away helps every run that has such time: without it, the cause has no share.
BETWEEN_STEPS = {"persistent_workers", "start_method", "cheaper_epoch_start"}
