"""Every setting that can be put into an unchanged training, on the GPU: whether it takes effect, and what it gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from running import Bench, Failed, found_result
from section import Row, Section

# name -> the settings, and what the script has to see of them
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tf32": ({"tf32": True}, {"precision": "high"}),
    "tf32 off": ({"tf32": False}, {"precision": "highest"}),
    "cudnn_benchmark": ({"cudnn_benchmark": True}, {"benchmark": True}),
    "pin_memory and non_blocking": ({"pin_memory": True, "non_blocking": True}, {"pinned": True}),
    "autocast bf16": ({"autocast": "bf16"}, {}),
    "autocast fp16, the loss scaled": ({"autocast": "fp16"}, {}),
    "channels_last": ({"channels_last": True}, {"channels_last": True}),
    "optimizer fused": ({"optimizer_form": "fused"}, {"fused": True}),
    "optimizer foreach": ({"optimizer_form": "foreach"}, {"fused": False}),
    "lazy_scalars": ({"lazy_scalars": True}, {"scalar": "LazyScalar"}),
    "accumulate": ({"accumulate": 2}, {}),
    "lr_factor": ({"lr_factor": 2.0}, {}),
    "batch_size": ({"batch_size": 2}, {"batch_size": 2}),
    "num_workers": ({"num_workers": 1}, {}),
    "compile": ({"compile": "default"}, {"compiled": True}),
    "compile with CUDA graphs": ({"compile": "reduce-overhead"}, {"compiled": True}),
}
CHANGES_LOSSES = ("accumulate", "lr_factor", "batch_size")
# Of a loss: bf16 has 8 bits, and the differences of some tens of steps add up.
TOLERANCE = 0.05


def _items(bench: Bench) -> dict[str, Callable[[], Row]]:
    plain: list[dict[str, Any]] = []
    # The fake GPU's tensors are not traced by a compiler.
    names = [name for name in SETTINGS if not (bench.dry and name.startswith("compile"))]
    return {name: lambda name=name: _setting(bench, name, plain) for name in names}


def _setting(bench: Bench, name: str, plain: list[dict[str, Any]]) -> Row:
    sizes = ("--steps", 12, "--batch-size", 4, "--width", 4, "--size", 16) if bench.dry else ()
    command = bench.script("ordinary.py", *sizes)
    if not plain:
        plain.append(bench.result(command))
    wanted, expected = SETTINGS[name]
    words = [word for key, value in wanted.items() for word in ("--set", f"{key}={_written(value)}")]
    out, said = bench.run(bench.flatout("apply", *words, "--", *command))
    seen = found_result(out + said)
    refused = [line for line in said.splitlines() if "could not be set" in line]
    if refused:
        raise Failed(refused[0][:200])
    missing = [f"{key} is {seen[key]!r}" for key, value in expected.items() if seen[key] != value]
    away = max((abs(a - b) for a, b in zip(seen["losses"], plain[0]["losses"], strict=False)), default=math.inf)
    same = name in CHANGES_LOSSES or away <= TOLERANCE
    gain = plain[0]["step_ms"] / seen["step_ms"]
    cells = [f"{seen['step_ms']:.2f}", f"{gain:.2f}x", f"{away:.4f}", "; ".join(missing) or "as asked"]
    return Row(cells, not missing and same and all(map(math.isfinite, seen["losses"])))


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


INJECTED = Section(
    "settings",
    "Settings put into an unchanged training",
    f"they take effect, and losses stay within {TOLERANCE} of those without",
    5,
    ("ms/step", "gain", "largest difference of a loss", "seen by the script"),
    _items,
)
