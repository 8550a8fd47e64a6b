"""The types of all JSON in a run folder, as docs/record-format.md describes it; other fields are not read."""

from __future__ import annotations

from typing import Any

from flatout.record.after_window import (
    BROADCAST_PAIRS,
    CEILINGS,
    COORDINATE_PRODUCTS,
    DISCARDED_GRADIENTS,
    DOUBLED_INPUT,
    FROZEN_MODULES,
    GATHERED_WEIGHTS,
    LAST_STEPS,
    LOSS_TARGETS,
    MODEL_FUNCTIONS,
    MODEL_LAYOUTS,
    PADDING,
    READ_VALUES,
    REFERENCE,
    REPEATED_ROWS,
    REPEATED_WEIGHT,
    REPEATED_WORK,
    SLICE_LINES,
    SPANNING_KERNELS,
    STEPWISE_LAYERS,
    STEPWISE_PRODUCTS,
    UNFUSED_ATTENTION,
    UNFUSED_FUNCTIONS,
    UNMERGED_LAYERS,
    UNUSED_GRADIENTS,
    ZERO_OPERANDS,
)
from flatout.record.decoding import Damaged, Decoder, flag, items, number, record, row, scalar, table, text, whole

_MOST_WORKERS = 4096  # of one loader: far above what any machine runs
_COUNT = whole()
_PID = whole(0, 1 << 31)
_SMALL = whole(0, 1 << 20)
_BYTES = whole(0, 1 << 60)
_SHARE = number(0.0, 1e9)
_TEXTS = items(text, 1 << 16)

RUN = record(
    {
        "format": scalar,
        "id": text,
        "flatout": text,
        "command": _TEXTS,
        "cwd": text,
        "started": text,
        "start_ns": _COUNT,
        "end_ns": _COUNT,
        "window_end_ns": _COUNT,
        "bounds": record({"steps": _COUNT, "seconds": number(0.0), "full": flag}, nulls=True),
        "stop": text,
        "exit_code": whole(-(1 << 31), 1 << 31),
        "signal": _SMALL,
        "problems": _TEXTS,
        "clean": flag,
    },
    nulls=True,
)

_EXIT = record({"code": whole(-(1 << 31), 1 << 31), "exception": text, "traceback": _TEXTS}, nulls=True)

PROCESS = record(
    {
        "pid": _PID,
        "ppid": _PID,
        "start_ns": _COUNT,
        "end_ns": _COUNT,
        "argv": _TEXTS,
        "executable": text,
        "python": text,
        "cwd": text,
        "torch": text,
        "cuda": text,
        "device_count": _SMALL,
        "device_uuid": text,
        "rank": _SMALL,
        "local_rank": _SMALL,
        "world_size": _SMALL,
        "worker": whole(0, _MOST_WORKERS - 1),
        "threads": _SMALL,
        "switch_interval_us": whole(0, 1 << 40),
        "cudnn_benchmark": flag,
        "tf32": flag,
        "autocast": text,
        "param_dtype": text,
        "param_bytes": _BYTES,
        "memory_allocated": _BYTES,
        "memory_reserved": _BYTES,
        "convolutions": whole(1, 3),
        "channels_last": flag,
        "outputs": _COUNT,
        "compiled": flag,
        "start_method": text,
        "schedstat": flag,
        "io": flag,
        "exit": _EXIT,
        "fault": text,
        "not_patched": table(text),
        "applied": table(scalar),
        "refused": table(text),
        "debugging": table(text),
        "experiments_skipped": text,
        "padding": PADDING,
        "unused_gradients": UNUSED_GRADIENTS,
        "discarded_gradients": DISCARDED_GRADIENTS,
        "frozen_modules": FROZEN_MODULES,
        "repeated_weight": REPEATED_WEIGHT,
        "repeated_work": REPEATED_WORK,
        "repeated_rows": REPEATED_ROWS,
        "slice_takes": SLICE_LINES,
        "slice_writes": SLICE_LINES,
        "loss_targets": LOSS_TARGETS,
        "stepwise_layers": STEPWISE_LAYERS,
        "unmerged_layers": UNMERGED_LAYERS,
        "spanning_kernels": SPANNING_KERNELS,
        "unfused_functions": UNFUSED_FUNCTIONS,
        "coordinate_products": COORDINATE_PRODUCTS,
        "gathered_weights": GATHERED_WEIGHTS,
        "stepwise_products": STEPWISE_PRODUCTS,
        "model_layouts": MODEL_LAYOUTS,
        "model_functions": MODEL_FUNCTIONS,
        "unfused_attention": UNFUSED_ATTENTION,
        "broadcast_pairs": BROADCAST_PAIRS,
        "read_values": READ_VALUES,
        "zero_operands": ZERO_OPERANDS,
        "doubled_input": DOUBLED_INPUT,
        "reference": REFERENCE,
        "trace_faults": row(_COUNT, _COUNT, _COUNT),
        "ceilings": CEILINGS,
        "last_steps": LAST_STEPS,
        "usual_steps": table(row(number(0.0, 1.0), number(0.0, 1.0), _COUNT)),
        "live": record({"passes": flag, "failed": text, "gained": items(_SMALL, 64), "refused": table(text)}),
    },
    nulls=True,
)

_CORES = record(
    {
        "usable": number(0.0, 1 << 20),
        "online": _SMALL,
        "affinity": _SMALL,
        "quota": number(0.0, 1 << 20),
        "model": text,
        "derived": table(text),
    }
)
_MOUNT = record({"point": text, "kind": text, "source": text, "fs_type": text, "remote": flag}, required=("point",))
_GPU = record(
    {
        "index": _SMALL,
        "name": text,
        "uuid": text,
        "memory_bytes": _BYTES,
        "driver": text,
        "compute_capability": text,
        "pcie_generation": _SMALL,
        "pcie_generation_max": _SMALL,
        "pcie_width": _SMALL,
        "pcie_width_max": _SMALL,
        "power_limit_w": number(0.0),
        "sm_clock_max_mhz": _COUNT,
        "memory_clock_max_mhz": _COUNT,
        "mig": flag,
        "mig_devices": _TEXTS,
    },
    required=("index",),
)

MACHINE = record(
    {
        "cores": _CORES,
        "memory": record(
            {"total_bytes": _BYTES, "available_bytes": _BYTES, "limit_bytes": _BYTES, "limit_from": text}
            | {"huge_pages": text}
        ),
        "shm": record({"size_bytes": _BYTES, "free_bytes": _BYTES}),
        "mounts": items(_MOUNT, 1 << 16),
        "gpus": items(_GPU, 1024),
        "kernel": text,
        "cgroup": text,
        "not_measured": table(text),
    },
    nulls=True,
)

_NETWORK = record({"recv": _COUNT, "sent": _COUNT}, required=("recv",))
_SAMPLED_GPU = record(
    {
        "index": _SMALL,
        "util": _SHARE,
        "memory_used": _BYTES,
        "memory_total": _BYTES,
        "power_w": number(0.0),
        "sm_mhz": _COUNT,
        "temperature": number(),
        "throttle": items(text, 256),
        "processes": items(row(_PID, _BYTES), 64),
    },
    required=("index",),
)
_NEIGHBOUR = record({"pid": _PID, "name": text, "cores": number(0.0, 1 << 20)}, required=("name", "cores"))
_SAMPLED_PROCESS = record(
    {
        "pid": _PID,
        "ppid": _PID,
        "name": text,
        "rss": _BYTES,
        "pss": _BYTES,
        "cpu_s": number(0.0, 1e12),
        "system_s": number(0.0, 1e12),
        "children_s": number(0.0, 1e12),
        "runqueue_s": number(0.0, 1e12),
        "threads": _COUNT,
        "majflt": _COUNT,
        "minflt": _COUNT,
    },
    required=("pid", "rss", "cpu_s"),
)

SAMPLE = record(
    {
        "t": _COUNT,
        "cpu": items(number(0.0, 1e6), 1 << 16),
        "cpu_usable": number(0.0, 1 << 20),
        "throttled_ns": _COUNT,
        "runqueue_ns": _COUNT,
        "memory": record({"used": _BYTES, "limit": _BYTES, "available": _BYTES}),
        "shm": record({"used": _BYTES, "size": _BYTES}, required=("used", "size")),
        "psi": table(table(_COUNT)),
        "disks": table(table(_COUNT)),
        "net": table(_NETWORK),
        "gpus": items(_SAMPLED_GPU, 1024),
        "processes": items(_SAMPLED_PROCESS, 1 << 20),
        "neighbours": items(_NEIGHBOUR, 64),
    },
    required=("t",),
)

_ID = whole(0, 0xFFFFFFFF)


def _setting(value: Any, damage: list[str]) -> int:
    """A whole number of a DataLoader: numpy's are written as text."""
    digits = type(value) is str and len(value) <= 18 and value.isascii() and value.isdigit()
    return int(_COUNT(int(value) if digits else value, damage))


def _workers(value: Any, damage: list[str]) -> int:
    found = _setting(value, damage)
    if found > _MOST_WORKERS:
        raise Damaged
    return found


def _line(value: Any, damage: list[str]) -> int:
    """A line of code; some frames have none."""
    return 0 if value is None else int(whole(0, 1 << 31)(value, damage))


_FRAME = row(text, _line, text, text, flag)
_PLACE: dict[str, Decoder] = {"file": text, "line": _line, "function": text, "source": text}
_NAMES: dict[str, dict[str, Decoder]] = {
    "loader": {
        "num_workers": _workers,
        "batch_size": _setting,
        "prefetch_factor": _setting,
        "pin_memory": flag,
        "persistent_workers": flag,
        "in_order": flag,
        "drop_last": flag,
        "timeout": number(),
        "iterable": flag,
        "dataset": text,
        "dataset_len": _COUNT,
        "batches": _COUNT,
        "sampler": text,
        "batch_sampler": text,
        "collate_fn": text,
        "start_method": text,
        "site": text,
        "batch_bytes": _BYTES,
        "batch_layout": items(scalar, 64),
        "threads": flag,
        "rebuilt": flag,
    },
    "workers": {"loader": _ID, "pids": items(_PID, 1 << 16), "iteration": _COUNT},
    "stack": {"frames": items(_FRAME, 256), "thread": text},
    "site": _PLACE,
    "compilation": {**_PLACE, "reason": text, "limited": flag},
    "graph_break": {**_PLACE, "reason": text, "count": _COUNT},
    "text": {"text": text},
    "files": {
        "opens": _COUNT,
        "dirs": table(_COUNT),
        "again": table(_COUNT),
        "extensions": table(_COUNT),
        "sampled": table(_COUNT),
        "peers": table(_COUNT),
    },
}
_ENTRY = record({"id": _ID, "type": text}, required=("id",))
_FIELDS = {name: record(fields) for name, fields in _NAMES.items()}
# A later line of the same id may omit its type.
_ANY = record({name: decoder for fields in _NAMES.values() for name, decoder in fields.items()})


def names_entry(value: Any, damage: list[str]) -> dict[str, Any]:
    """One line of a names file. For an unknown type only ``id`` and ``type`` are kept.

    Raises:
        Damaged: it is not an object, or has no id.
    """
    entry: dict[str, Any] = _ENTRY(value, damage)
    decode = _FIELDS.get(entry["type"]) if "type" in entry else _ANY
    return {**(decode(value, damage) if decode else {}), **entry}
