#!/usr/bin/env python3
"""Random patches of one volume: the reader of `flatout stage --volumes` beside others; writes a page of measurements.

python benchmarks/volumes/run.py [--edge 512] [--patches 40] [--rounds 3] [--out docs/measurements/volumes.md]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))

from conditions import head  # noqa: E402
from readers import READERS, Reader  # noqa: E402
from rivals import prepare  # noqa: E402

RIVALS = {"tensorstore": "0.1.86", "blosc2": "4.14.0"}
PATCHES = (64, 128, 192)
SLOW_SHARE = 5  # a slow reader reads this much fewer patches
REFERENCE, OURS = "npy, memory map, copied", "flatout, unpacked"
# Goal: at most (or at least) this times the rival, of which column.
LOADER = "flatout, data set: image with labels"
ZARR, ZSTD = "zarr-python, the same unpacked files", "zarr-python, the same zstd files"
GOALS = (
    ("CPU, 128³, at most 2.5x a warm memory-map copy", OURS, REFERENCE, 2.5),
    ("CPU, 128³, at least 10x less than zarr-python, unpacked files", ZARR, OURS, 10.0),
    ("CPU, 128³, at least 10x less than zarr-python, zstd files", ZSTD, "flatout, zstd", 10.0),
    ("CPU, 128³, at least 25x less than slice tifs", "one tif a slice", OURS, 25.0),
)


@dataclass(frozen=True)
class Taken:
    """Means of a round."""

    cpu_ms: float
    wall_ms: float  # median
    disk: float  # bytes from disk per byte of the patch


def volume(edge: int, dtype: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Wavy sheets in the noise of a detector: 8 bits of it hardly shrink."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:edge, 0:edge].astype(np.float32)
    out = np.empty((edge, edge, edge), dtype)
    scale = 1 if dtype == "uint8" else 200
    for z in range(edge):
        sheets = np.sin((x + 8 * np.sin(y / 23 + z / 41)) / 5) * 30 + 120
        out[z] = ((sheets + rng.normal(0, 12, sheets.shape)).clip(0, 255) * scale).astype(dtype)
    return out


def main() -> None:
    """Measure, and print or write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--edge", type=int, default=512)
    options.add_argument("--patches", type=int, default=40)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--dtypes", default="uint8,uint16")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    environment = prepare(Path(tempfile.gettempdir()) / "flatout-volume-rivals", RIVALS)
    readers = [reader for reader in READERS if not any(reader.name.startswith(name) for name in environment.missing)]
    packages = ("flatout", "numpy", "zarr", "zstandard", "tifffile")
    lines = head("Patches of volumes: readers side by side", "benchmarks/volumes/run.py", packages, RIVALS)
    lines += [f"- {name}: not measured, because {why}" for name, why in environment.missing.items()]
    few = chosen.patches // SLOW_SHARE
    lines += [
        f"- A volume of {chosen.edge}³; {chosen.patches} patches a round at random places ({few} of slow readers,"
        f" and cold), the same for all; {chosen.rounds} rounds, taking turns; each reader in a process of its own.",
        "- CPU: of the process, all its threads: mean of a round, median of the rounds. 'x': beside the memory map of",
        "  the same round, median (least-most).",
        "- Cold: the files were dropped from the page cache before each patch; the machine's host may still hold them.",
        "- Disk: bytes that the system read, per byte of the patch.",
    ]
    with tempfile.TemporaryDirectory(prefix="volumes-") as temporary:
        for dtype in chosen.dtypes.split(","):
            lines += _one_type(dtype, chosen, readers, environment.python, Path(temporary))
    text = "\n".join(lines) + "\n"
    if chosen.out:
        chosen.out.write_text(text)
    print(text)


def _one_type(dtype: str, chosen: argparse.Namespace, readers: list[Reader], python: str, temporary: Path) -> list[str]:
    voxels = volume(chosen.edge, dtype)
    np.save(temporary / "volume.npy", voxels)
    sizes = {}
    for reader in readers:
        folder = _folder(temporary, dtype, reader)
        folder.mkdir(parents=True)
        _python(python, ["--write", reader.name, str(temporary / "volume.npy"), str(folder)])
        sizes[reader.name] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    taken: dict[tuple[str, int, bool], list[Taken]] = {}
    for _ in range(chosen.rounds):
        for edge, cold in [(edge, False) for edge in PATCHES] + [(128, True)]:
            for reader in readers:
                made = _run(python, reader, _folder(temporary, dtype, reader), chosen, edge, cold, voxels.itemsize)
                taken.setdefault((reader.name, edge, cold), []).append(made)
    lines = ["", f"## {dtype}", "", f"| reader | of raw size | {' | '.join(f'CPU ms, {e}³ | x' for e in PATCHES)}"]
    lines[-1] += " | cold 128³, wall ms | x | disk |"
    lines.append("|---" * (lines[-1].count("|") - 1) + "|")
    for reader in readers:
        cells = [reader.name, f"{sizes[reader.name] / voxels.nbytes:.2f}"]
        for edge in PATCHES:
            of = [made.cpu_ms for made in taken[reader.name, edge, False]]
            cells += [f"{statistics.median(of):.2f}", _ratio(of, [m.cpu_ms for m in taken[REFERENCE, edge, False]])]
        cold_runs = taken[reader.name, 128, True]
        walls = [made.wall_ms for made in cold_runs]
        cells += [f"{statistics.median(walls):.1f}", _ratio(walls, [m.wall_ms for m in taken[REFERENCE, 128, True]])]
        cells.append(f"{statistics.median(made.disk for made in cold_runs):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *_goals(taken, {reader.name for reader in readers})]


def _goals(taken: dict[tuple[str, int, bool], list[Taken]], measured: set[str]) -> Iterator[str]:
    yield "| goal | measured | |"
    yield "|---|---|---|"
    for text, above, below, limit in GOALS:
        if {above, below} <= measured:
            pairs = zip(taken[above, 128, False], taken[below, 128, False], strict=True)
            ratio = statistics.median(a.cpu_ms / b.cpu_ms for a, b in pairs)
            met = ratio <= limit if "at most" in text else ratio >= limit
            yield f"| {text} | {ratio:.1f} | {'met' if met else 'missed'} |"
    own = statistics.median(made.cpu_ms for made in taken[LOADER, 128, False])
    yield f"| CPU of an image with labels, 128³, at most 10 ms | {own:.1f} ms | {'met' if own <= 10 else 'missed'} |"
    disk = statistics.median(made.disk for made in taken[OURS, 128, True])
    yield f"| bytes from disk, cold 128³, at most 2x the patch | {disk:.2f} | {'met' if disk <= 2 else 'missed'} |"
    if (rival := "blosc2 as nnU-Net stores, memory map") in measured:
        pairs = zip(taken[rival, 128, True], taken[OURS, 128, True], strict=True)
        faster = statistics.median(a.wall_ms / b.wall_ms for a, b in pairs)
        yield f"| cold 128³, 7x faster than blosc2 memory maps | {faster:.1f} | {'met' if faster >= 7 else 'missed'} |"


def _ratio(mine: list[float], reference: list[float]) -> str:
    ratios = sorted(a / b for a, b in zip(mine, reference, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


def _folder(temporary: Path, dtype: str, reader: Reader) -> Path:
    return temporary / dtype / str(READERS.index(reader))


def _run(
    python: str, reader: Reader, folder: Path, chosen: argparse.Namespace, edge: int, cold: bool, itemsize: int
) -> Taken:
    patches = max(chosen.patches // (SLOW_SHARE if reader.slow or cold else 1), 2)
    made = json.loads(
        _python(python, [reader.name, str(folder), *map(str, (chosen.edge, edge, patches)), "1" if cold else "0"])
    )
    return Taken(
        statistics.fmean(made["cpu_ms"]),
        statistics.median(made["wall_ms"]),
        statistics.fmean(made["disk"]) / (edge**3 * itemsize),
    )


def _python(python: str, arguments: list[str]) -> str:
    source = str(HERE.parents[1] / "src")  # the rivals' environment has no flatout
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [python, str(HERE / "one_reader.py"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
