"""Predicted memory of a step against the most that the allocator held."""

from __future__ import annotations

import json
from collections.abc import Callable

from running import Bench
from section import Row, Section

# timm's name -> batch size that is tracked, side of the images: small enough for 16 GB at three times the batch
NETWORKS = {
    "resnet50": (16, 224),
    "resnet18": (32, 224),
    "convnext_tiny": (12, 224),
    "vit_small_patch16_224": (16, 224),
    "efficientnet_b0": (16, 224),
    "mobilenetv3_large_100": (24, 224),
    "regnety_016": (16, 224),
    "densenet121": (12, 224),
    "swin_tiny_patch4_window7_224": (12, 224),
    "mixer_s32_224": (16, 224),
}
TINY = {"test_resnet": (2, 32), "test_vit": (2, 160)}
FACTOR = 3
WITHIN = 0.10


def _items(bench: Bench) -> dict[str, Callable[[], Row]]:
    networks = TINY if bench.dry else NETWORKS
    return {name: lambda name=name, at=at: _network(bench, name, *at) for name, at in networks.items()}


def _network(bench: Bench, name: str, batch_size: int, size: int) -> Row:
    """Tracked at a batch size and twice that by ``flatout memory``, measured at three times."""
    command = bench.script("network.py", name, batch_size, size)
    out, _ = bench.run(bench.flatout("memory", "--json", "--runs-dir", bench.runs.absolute(), "--", *command))
    line = json.loads(out[out.index("{") :])
    larger = FACTOR * batch_size
    predicted = max(line["base_bytes"] + line["slope_bytes"] * larger, line["least_bytes"])
    held = bench.result(bench.script("network.py", name, larger, size))["peak_bytes"]
    error = predicted / held - 1
    cells = [str(larger), f"{predicted / 2**20:,.0f}", f"{held / 2**20:,.0f}", f"{100 * error:+.1f}%"]
    return Row(cells, abs(error) <= WITHIN)


MEMORY = Section(
    "memory",
    "Memory of a step, predicted from a third and two thirds of the batch, against max_memory_allocated (MiB)",
    f"within {100 * WITHIN:.0f}%",
    7,
    ("batch", "predicted", "held", "error"),
    _items,
)
