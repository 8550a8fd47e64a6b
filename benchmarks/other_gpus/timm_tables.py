"""The tables of timm of images a second by model and part: inference under AMP, without torch.compile.

github.com/huggingface/pytorch-image-models (Apache-2.0), ``results/benchmark-infer-amp-nchw-*.csv``. They tell the
operations of a model and the size of its activations, not the time of its operators: how its time divides into products
and the rest is estimated from those, which a recorded step would have shown.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from checkout import Checkout

from flatout.measure.kernel_work import KernelWork
from flatout.plans.gpu_parts import GpuPart

SOURCE = (
    "github.com/huggingface/pytorch-image-models at {} (Apache-2.0), `results/benchmark-infer-amp-nchw-*.csv`: image "
    "models of at least 1 GMAC under AMP in inference, the same version of PyTorch on both parts, without "
    "torch.compile. The tables do not say how long each operator took: a recorded step does, so these errors contain "
    "one that `--gpu` does not make."
)
# Tables of one version of PyTorch, by part.
TABLES = {
    "2.4": {"RTX-3090": "pt240-cu124-rtx3090", "RTX-4090": "pt240-cu124-rtx4090"},
    "2.9": {
        "RTX-4090": "pt291-cu128-4090",
        "RTX-5090": "pt291-cu130-5090",
        "RTX-PRO-6000-Max-Q": "pt291-cu130-pro6000maxq",
    },
}
# Each activation is written and read by its layer, and by the normalisation and the activation function after it.
_PASSES = 6
_BYTES = 2  # of a float16
# Share of the bandwidth that kernels reach.
_REACHED = 0.8


@dataclass(frozen=True)
class Row:
    """One model at one image size on one part."""

    name: str
    seconds: float  # an image
    gmacs: float
    activations: float  # millions

    def work(self, part: GpuPart) -> tuple[KernelWork, ...]:
        """The time of an image divided as its operations and bytes suggest."""
        flops, size = 2e9 * self.gmacs, 1e6 * self.activations * _PASSES * _BYTES
        products_s, memory_s = flops / part.reached("fp16"), size / (_REACHED * part.bandwidth)
        products = self.seconds * products_s / (products_s + memory_s)
        return (
            KernelWork("convolution", "float16", products, 1.0),
            KernelWork("memory", "float16", self.seconds - products, 1.0),
        )


def rows(checkout: Checkout, name: str) -> Iterator[Row]:
    """The rows of one table, without models so small that the host bounds them."""
    text = checkout.text(f"results/benchmark-infer-amp-nchw-{name}.csv")
    for row in csv.DictReader(io.StringIO(text)):
        if float(row["infer_gmacs"] or 0) >= LEAST_GMACS:
            yield Row(
                f"{row['model']} {row['infer_img_size']}",
                1 / float(row["infer_samples_per_sec"]),
                float(row["infer_gmacs"]),
                float(row["infer_macts"]),
            )


LEAST_GMACS = 1.0
