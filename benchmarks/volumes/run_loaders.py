#!/usr/bin/env python3
"""Loaders of augmented 3-D patches side by side: flatout, nnU-Net, MONAI and TorchIO; writes a page of measurements.

    python benchmarks/volumes/run_loaders.py --out docs/measurements/volume-loaders.md    # about 15 minutes

Loaders take turns, each in a process of its own with one thread. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))

from conditions import head  # noqa: E402
from loaders import BATCH, LOADERS, NNUNET, OURS, OURS_ON_CPU, PATCH, Loader  # noqa: E402
from rivals import prepare  # noqa: E402

RIVALS = {"nnunetv2": "2.8.1", "torchio": "1.2.1"}
QUICK_SHARE = 10  # a loader that does not augment makes so many times more batches
GOALS = (
    ("patch with label, augmentation left to the device: at most 10 CPU ms", OURS, "", 10.0),
    ("the same: at least 30x less CPU than nnU-Net's loader", OURS, NNUNET, 30.0),
    ("augmentation on the CPU: at least 2x less CPU than nnU-Net's loader", OURS_ON_CPU, NNUNET, 2.0),
)
Taken = dict[str, list[dict[str, float]]]


def main() -> None:
    """Measure, and print or write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--edge", type=int, default=192, help="of a volume, voxels")
    options.add_argument("--volumes", type=int, default=4)
    options.add_argument("--batches", type=int, default=20, help="a round, of loaders that augment")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--environment", type=Path, default=Path(tempfile.gettempdir()) / "flatout-volume-loaders")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    environment = prepare(chosen.environment, RIVALS)
    wanted = [one for one in LOADERS if one.package not in environment.missing]
    taken: Taken = {one.name: [] for one in wanted}
    failed = dict(environment.missing)
    with tempfile.TemporaryDirectory(prefix="volume-loaders-") as temporary:
        for form in dict.fromkeys(one.form for one in wanted):
            (Path(temporary) / form).mkdir()
            _python(environment.python, ["--write", form, f"{temporary}/{form}", str(chosen.edge), str(chosen.volumes)])
        for number in range(chosen.rounds):
            for one in wanted[number % len(wanted) :] + wanted[: number % len(wanted)]:
                batches = chosen.batches * (1 if one.augments else QUICK_SHARE)
                try:
                    said = _python(environment.python, [one.name, f"{temporary}/{one.form}", str(batches), str(number)])
                    taken[one.name].append(json.loads(said.splitlines()[-1]))
                except subprocess.CalledProcessError as error:
                    failed[one.name] = f"it ended with exit code {error.returncode}"
    text = "\n".join([*_head(chosen, failed), *_table(wanted, taken), "", *_goals(taken)]) + "\n"
    if chosen.out:
        chosen.out.write_text(text)
    print(text)


def _head(chosen: argparse.Namespace, failed: dict[str, str]) -> list[str]:
    packages = ("flatout", "numpy", "torch", "monai")
    title = "Augmented patches of volumes: loaders side by side"
    return [
        *head(title, "benchmarks/volumes/run_loaders.py", packages, RIVALS),
        *(f"- {name}: not measured, because {why}" for name, why in failed.items()),
        f"- {chosen.volumes} volumes of {chosen.edge}³ with labels in the page cache; batches of {BATCH} patches of"
        f" {PATCH}³, a third of them around foreground; {chosen.rounds} rounds, taking turns; {chosen.batches} batches"
        f" a round, {chosen.batches * QUICK_SHARE} of loaders that do not augment.",
        "- CPU and time: of the process, a patch with its label; median of the rounds (least to most). One thread.",
        "- flatout and MONAI read uint8, nnU-Net the float32 that it stores. MONAI and TorchIO hold whole volumes in",
        "  memory. Only flatout and nnU-Net have the same shares, ranges and order; MONAI's and TorchIO's transforms",
        "  are the nearest that they have, and TorchIO's change a whole volume, of which eight patches are cut.",
        "- flatout turns the patch itself, labels by the nearest voxel; nnU-Net turns a larger box, labels by linear",
        "  interpolation. See docs/volumes.md.",
        "",
    ]


def _table(wanted: list[Loader], taken: Taken) -> list[str]:
    lines = ["| loader | CPU ms a patch | ms a patch | CPU beside the first row | memory |", "|---|---|---|---|---|"]
    ours = [one["cpu_ms"] for one in taken[OURS]]
    for loader in wanted:
        made = taken[loader.name]
        if not made:
            continue
        cpu = [one["cpu_ms"] for one in made]
        wall = statistics.median(one["wall_ms"] for one in made)
        memory = statistics.median(one["memory"] for one in made) / 2**20
        ratio = statistics.median(cpu) / statistics.median(ours)
        lines.append(f"| {loader.name} | {_spread(cpu)} | {wall:.1f} | {ratio:.1f}x | {memory:,.0f} MiB |")
    return lines


def _goals(taken: Taken) -> list[str]:
    lines = ["| goal | measured | |", "|---|---|---|"]
    for text, ours, rival, limit in GOALS:
        mine = [one["cpu_ms"] for one in taken[ours]]
        theirs = [one["cpu_ms"] for one in taken.get(rival, ())]
        if rival and not theirs:
            continue
        if rival:
            measured = statistics.median(theirs) / statistics.median(mine)
            met, shown = measured >= limit, f"{measured:.1f}x"
        else:
            measured = statistics.median(mine)
            met, shown = measured <= limit, f"{measured:.1f} ms"
        lines.append(f"| {text} | {shown} | {'met' if met else 'missed'} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _python(python: str, arguments: list[str]) -> str:
    source = str(HERE.parents[1] / "src")  # the rivals' environment has no flatout
    unused = dict.fromkeys(("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"), "/")  # nnU-Net warns without them
    environment = os.environ | unused | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [python, str(HERE / "one_loader.py"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
