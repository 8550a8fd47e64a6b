"""The types of what the training process measures after the window, in its JSON file."""

from __future__ import annotations

from typing import Any

from flatout.record.decoding import flag, items, number, record, row, table, text, whole

_COUNT = whole()
_BYTES = whole(0, 1 << 60)
_SMALL = whole(0, 1 << 20)
_RATES = table(number(1.0))
_BATCHES_AND_NS = row(whole(1), whole(1))

PADDING = record(
    {
        "looked_at": _SMALL,
        "computed": flag,
        "packed": flag,
        "tensor": text,
        "sides": items(whole(1, 1 << 31), 3),
        "evidence": text,
        "value": whole(-(1 << 63), 1 << 63),
        "part": number(0.0, 1.0),
        "batches": items(items(whole(0, 1 << 31), 1 + (1 << 12)), 64),
    }
)
UNUSED_GRADIENTS = record({"elements": _COUNT, "of": _COUNT, "modules": items(text, 1 << 16), "not_tried": text})
DISCARDED_GRADIENTS = record(
    {
        "elements": _COUNT,
        "of": _COUNT,
        # File, line and function; backward passes, the elements that each computes in vain and in all, and the modules.
        "lines": items(row(text, _SMALL, text, _COUNT, _COUNT, _COUNT, items(text, 64)), 64),
        "passes": row(_COUNT, _COUNT),
        "not_tried": text,
        "failed": text,
    },
    nulls=True,
)
FROZEN_MODULES = record(
    {"steps": whole(1), "ns": _COUNT, "modules": items(row(text, _COUNT, whole(1), _BYTES, _COUNT), 64)},
    required=("steps", "ns", "modules"),
)
STEPWISE_LAYERS = items(
    record(
        {
            "name": text,
            "kind": text,
            "calls": whole(1),
            "chained": _COUNT,
            "timed": whole(1),
            "apart_ns": items(whole(1), 64),
            "joined_ns": items(whole(1), 64),
            "skipped": text,
        },
        required=("kind", "calls"),
    ),
    64,
)
REPEATED_WEIGHT = record(
    {
        "name": text,
        "shape": items(_COUNT, 8),
        "output": items(_COUNT, 8),
        "uses": whole(1),
        "chain": whole(1),
        "part": number(0.0, 1.0),
        "apart_s": number(0.0),
        "joined_s": number(0.0),
        "module": record(
            {"calls": whole(2), "apart_ns": items(whole(1), 64), "joined_ns": items(whole(1), 64), "skipped": text}
        ),
    },
    required=("uses", "chain", "part"),
)
REPEATED_WORK = record(
    {
        "operators": _COUNT,
        "ns": _COUNT,
        "again_ns": _COUNT,
        "behind_ns": _COUNT,
        "on_purpose_ns": _COUNT,
        "cut": flag,
        "lines": items(row(text, _COUNT, text, text, text, _COUNT, _COUNT), 64),
        "skipped": text,
    }
)
REPEATED_ROWS = record(
    {
        "ns": _COUNT,
        "needless_ns": _COUNT,
        "products": _COUNT,
        "times": number(1.0),
        "lines": items(row(text, _COUNT, text, _COUNT, _COUNT), 64),
    },
    required=("ns", "needless_ns", "products", "times", "lines"),
)
UNMERGED_LAYERS = items(
    record(
        {
            "operator": text,
            "layers": whole(2),
            "groups": whole(1),
            "input": items(_COUNT, 64),
            "lines": items(row(text, _COUNT, text, _COUNT), 64),
            "apart_ns": items(whole(1), 64),
            "joined_ns": items(whole(1), 64),
            "skipped": text,
        },
        required=("operator", "layers", "groups", "input", "lines"),
    ),
    64,
)


def _both_forms(**fields: Any) -> Any:
    """Kinds of layers with times of both passes as they are and in another form, or why they were not timed."""
    shared = {
        "calls": whole(1),
        "input": items(_COUNT, 64),
        "lines": items(row(text, _COUNT, text, _COUNT), 64),
    }
    times = {"plain_ns": items(whole(1), 64), "joined_ns": items(whole(1), 64), "skipped": text}
    return items(record({**shared, **fields, **times}, required=(*shared, *fields)), 64)


UNFUSED_FUNCTIONS = _both_forms(name=text, code=text)
COORDINATE_PRODUCTS = _both_forms(matrix=items(_COUNT, 64), values=_COUNT, kept=flag)
MODEL_FUNCTIONS = items(row(text, text), 64)
MODEL_LAYOUTS = _both_forms(name=text, layout=text)
UNFUSED_ATTENTION = _both_forms(keys=whole(1), masked=flag, dropout=flag)
BROADCAST_PAIRS = _both_forms(kind=text, left=items(_COUNT, 64), right=items(_COUNT, 64))
STEPWISE_PRODUCTS = _both_forms(weight=items(_COUNT, 64))
GATHERED_WEIGHTS = _both_forms(matrix=items(_COUNT, 64), matrices=whole(1))
SPANNING_KERNELS = _both_forms(kernel=items(_COUNT, 64))
READ_VALUES = record({"ns": _COUNT, "alone_ns": _COUNT, "lines": items(row(text, _COUNT, text, _COUNT), 64)})
SLICE_LINES = items(row(text, _COUNT, text, _COUNT), 64)
LOSS_TARGETS = record(
    {
        "classes": _COUNT,
        "positions": _COUNT,
        "ignored": _COUNT,
        "highest": whole(-1),
        "looked_up": _COUNT,
    },
    required=("classes", "positions", "ignored", "highest"),
)
# Of each shape of matrix in products: products, those with one that is almost all zeros, its elements, its other ones.
ZERO_OPERANDS = items(row(items(_COUNT, 64), _COUNT, _COUNT, _COUNT, _COUNT), 64)
DOUBLED_INPUT = record(
    {"samples": whole(1), "single_ns": items(whole(1), 64), "doubled_ns": items(whole(1), 64), "skipped": text}
)
_FACTOR = number(1e-3, 1e6)
REFERENCE = record(
    {"operator_ns": whole(1), "float64_factor": _FACTOR, "float64_convolution_factor": _FACTOR, "failed": text}
    | {name: whole(1) for name in ("bernoulli_ns", "quick_mask_ns", "bce_ns", "quick_bce_ns")}
)
CEILINGS = record(
    {
        "device": text,
        "threads": _SMALL,
        "cores": number(0.0, 1 << 20),
        "product_flops": _RATES,
        "convolution_flops": _RATES,
        "memory_bps": items(row(whole(1), number(1.0)), 64),
        "failed": text,
    }
)
LAST_STEPS = record(
    {
        "blocks": items(row(text, whole(1), whole(1)), 256),
        "kept": _COUNT,
        "samples": _COUNT,
        "idle": flag,
        "peak_bytes": table(_BYTES),
        "loader": _BATCHES_AND_NS,
        "again": _BATCHES_AND_NS,
        "asked_twice": row(_COUNT, _COUNT),
        "skipped": table(text),
    }
)
