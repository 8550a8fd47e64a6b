"""Lambda's table of training throughput by network and part, in float16.

github.com/lambdal/deeplearning-benchmark (no licence: read, never copied), ``pytorch-train-throughput*-fp16.csv`` in
``pytorch``. It says nothing of classes of work: the mix of a network is fitted to the other parts, without the two of a
pair.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping

import numpy as np
from checkout import Checkout

from flatout.measure.kernel_work import KernelWork
from flatout.plans.gpu_parts import GpuPart

SOURCE = (
    "github.com/lambdal/deeplearning-benchmark at {}, `pytorch/pytorch-train-throughput*-fp16.csv`: training in "
    "float16, the largest batch that fits each part. The mix of classes (products, memory, host) is no recorded one: "
    "for each pair it is fitted to the network's throughput on the other parts."
)
NETWORKS = ("ssd", "bert_base_squad", "bert_large_squad", "gnmt", "resnet50", "waveglow")
PARTS = {
    "Quadro RTX 8000": "RTX-8000",
    "LambdaCloud V100 16GB": "V100-SXM2-16GB",
    "RTX 3090": "RTX-3090",
    "LambdaCloud A10": "A10",
    "LambdaCloud A100 40GB PCIe": "A100-PCIe-40GB",
    "A100 80GB PCIe": "A100-PCIe-80GB",
    "A100 80GB SXM4": "A100-SXM-80GB",
    "RTX 6000 Ada": "RTX-6000-Ada",
    "RTX A6000": "RTX-A6000",
    "RTX 4090": "RTX-4090",
    "H100 80GB PCIe Gen5": "H100-PCIe",
    "Dell H100 80GB SXM5": "H100-SXM",
    "LambdaBM_ENG04_1xH200_140GB_SXM_h200_v2": "H200-SXM",
    "LambdaOD_test_1xB200_192GB_129-213-83-251_v2": "B200",
}
DATA_CENTRE = ("V100", "A10", "A100", "H100", "H200", "B200")
_STEPS = 26  # of the grid, a side


def seconds(checkout: Checkout) -> dict[str, dict[str, float]]:
    """Time of a sample by part and network."""
    found: dict[str, dict[str, float]] = {}
    for version in ("", "-v2"):
        text = checkout.text(f"pytorch/pytorch-train-throughput{version}-fp16.csv")
        for row in csv.DictReader(io.StringIO(text)):
            part = PARTS.get(row.get("name_gpu") or row.get("") or "")
            if part:
                found[part] = {name: 1 / float(row[name]) for name in NETWORKS if float(row[name] or 0)}
    return found


def mixed(parts: Mapping[str, GpuPart], measured: Mapping[str, float], now: str, then: str) -> tuple[KernelWork, ...]:
    """The time of a sample on ``now``, divided by the mix that fits the parts other than ``now`` and ``then`` best."""
    others = [name for name in measured if name not in (now, then)]
    costs = _costs([parts[name] for name in others])
    logarithms = np.log([measured[name] for name in others])
    best = min(
        (
            (one, two, _STEPS - one - two)
            for one, two in itertools.product(range(_STEPS + 1), repeat=2)
            if one + two <= _STEPS
        ),
        key=lambda mix: _misfit(np.log(costs @ np.array(mix)) - logarithms),
    )
    shares = np.array(best) * _costs([parts[now]])[0]
    divided = measured[now] * shares / shares.sum()
    kinds = ("matrix", "memory", "bus")  # the bus does not scale, as the host does not
    return tuple(KernelWork(kind, "float16", float(one), 1.0) for kind, one in zip(kinds, divided, strict=True))


def _costs(parts: list[GpuPart]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Time of a unit of products, of memory and of host code."""
    return np.array([[2e14 / part.reached("fp16"), 1.5e12 / part.bandwidth, 1.0] for part in parts])


def _misfit(errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.abs(errors - np.median(errors)).sum())
