"""Whole models of NeuSight's measurements, with the time of each of their operators on one layer.

github.com/sitar-lab/NeuSight (MIT; Lee, Phanishayee and Mahajan, ASPLOS 2025), ``scripts/asplos/label``: float32
without TF32, PyTorch 2.1; a CSV of operators and the latency of the whole model as JSON, by part and by model.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from checkout import Checkout

from flatout.measure.kernel_work import KernelWork

FOLDER = "scripts/asplos/label"
PARTS = {
    "Tesla_P100-PCIE-16GB": "P100-PCIe",
    "Tesla_V100-PCIE-32GB": "V100-PCIe-32GB",
    "Tesla_T4": "T4",
    "NVIDIA_A100-PCIE-40GB": "A100-PCIe-40GB",
    "NVIDIA_A100_80GB_PCIe": "A100-PCIe-80GB",
    "NVIDIA_L4": "L4",
    "NVIDIA_H100_80GB_HBM3": "H100-SXM",
}
_LAYER = re.compile(r"(?:layers?|h|blocks?)_0_")
_PRODUCT = re.compile(r"built-in method (matmul|bmm|addmm) of")
_LINEAR = re.compile(
    r"(query|key|value|dense|decoder|fc\d|proj\w*|lm_head|relationship|classifier|\.w[io]\w*|\.[qkvo])$"
)
# An event pair around nothing: the measurement's own time, seconds.
_NOTHING_S = 12e-6


@dataclass(frozen=True)
class Model:
    """One model on one part: its measured time, and the operators that it consists of."""

    part: str
    name: str
    seconds: float
    work: tuple[KernelWork, ...]

    @property
    def training(self) -> bool:
        """Forward and backward pass; else the forward pass only."""
        return "-train-" in self.name


def models(checkout: Checkout) -> Iterator[Model]:
    """All models whose whole time was measured on one GPU, with operators where these were."""
    csv.field_size_limit(1 << 30)
    for folder, part in PARTS.items():
        for path in checkout.files(f"{FOLDER}/{folder}"):
            name = path.rsplit("/", 1)[-1].removesuffix(".json")
            if not path.endswith(".json") or re.search(r"fusion|-[dpt]p[0-9]", name):
                continue
            whole = json.loads(checkout.text(path))
            table = checkout.text(path.replace(".json", ".csv"))
            if not table:
                continue
            rows = list(csv.DictReader(io.StringIO(table)))
            repeats = int(whole.get("num_layer") or 1)
            yield Model(part, name, float(whole["e2e_latency"]) / 1e3, tuple(_work(rows, repeats)))


def _work(rows: list[dict[str, str]], repeats: int) -> Iterator[KernelWork]:
    inside = [place for place, row in enumerate(rows) if _LAYER.search(row["Name"] + "_")]
    for place, row in enumerate(rows):
        calls = float(repeats) if inside and inside[0] <= place <= inside[-1] else 1.0
        for column, passes in (("fw_latency", 1), ("bw_latency", 2)):
            seconds = float(row[column] or 0) / 1e3 - _NOTHING_S
            if seconds > 0:
                yield _kernel(row, seconds * calls, calls, passes)


def _kernel(row: dict[str, str], seconds: float, calls: float, passes: int) -> KernelWork:
    """One operator: a backward pass of a product is two products, and moves as much for each."""
    shapes, result = _shapes(row["input_shapes"]), _shape(row["output_shape"])
    moved = 4.0 * passes * (sum(math.prod(shape) for shape in shapes) + math.prod(result))
    inner = _inner(row, shapes, result)
    if inner is None:
        return KernelWork("memory", "float32", seconds, calls, 0.0, calls * moved)
    if len(shapes) == 1:
        moved += 4.0 * passes * inner * result[-1]  # the weights
    return KernelWork(
        "matrix", "float32", seconds, calls, calls * passes * 2.0 * math.prod(result) * inner, calls * moved
    )


def _inner(row: dict[str, str], shapes: list[list[int]], result: tuple[int, ...]) -> int | None:
    """The dimension that a product sums over; None: it is none."""
    if row["op"] == "call_module":
        return shapes[0][-1] if _LINEAR.search(row["target"]) and shapes and len(result) > 1 else None
    product = _PRODUCT.search(row["target"])
    if product is None:
        return None
    first = shapes[1] if product[1] == "addmm" else shapes[0]
    return first[-1] if len(first) > 1 else None


def _shapes(text: str) -> list[list[int]]:
    found = ast.literal_eval(text or "[]")
    return [[int(size) for size in shape] for shape in found if isinstance(shape, list) and shape]


def _shape(text: str) -> tuple[int, ...]:
    found = re.findall(r"\d+", text or "")
    return tuple(int(size) for size in found)
