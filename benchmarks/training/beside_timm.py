#!/usr/bin/env python3
"""`flatout train` beside timm's train.py: the same network, images, batches, optimizer and augmentation on a CPU.

    python benchmarks/training/beside_timm.py --timm CHECKOUT --output docs/measurements/training-beside-timm.md

CHECKOUT: a clone of github.com/huggingface/pytorch-image-models, of which train.py alone is run; its parts come from
the installed timm. Each training is run with few and with more epochs: the difference divided by the epochs between
them is what an epoch takes, the rest is start-up. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared"), str(HERE.parent / "loader")]

from checkout import Checkout  # noqa: E402
from conditions import head  # noqa: E402

MODEL, EDGE, BATCH, RATE, WORKERS = "test_resnet", 160, 32, 0.05, 2
CLASSES = ("astronaut", "chelsea", "coffee", "rocket", "cat", "retina", "immunohistochemistry", "hubble_deep_field")
WIDTH, HEIGHT = 500, 375
RECIPE = f"""
about: the same training as timm's script
images: {{size: {EDGE}, validation_crop: 0.875, workers: {WORKERS}}}
model: {{name: {MODEL}}}
optimizer: {{name: sgd, lr: {RATE}, lr_batch_size: {BATCH}, weight_decay: 2.0e-5}}
schedule: {{warmup_epochs: 0}}
training: {{epochs: 1, batch_size: {BATCH}, label_smoothing: 0.1}}
logging: {{every_steps: 50}}
"""


@dataclass(frozen=True)
class Run:
    """One training."""

    cpu_s: float
    wall_s: float
    accuracy: float  # of its best epoch, 0 to 1


def make_images(folder: Path, train: int, validation: int) -> None:
    """Crops of photographs, of which the class is to be told, as JPEGs; the grain of a sensor put back."""
    from skimage import data

    rng = np.random.default_rng(0)
    for name in CLASSES:
        picture = Image.fromarray(np.asarray(getattr(data, name)())).convert("RGB")
        for number in range(train + validation):
            scale = min(picture.width / WIDTH, picture.height / HEIGHT) * rng.uniform(0.4, 0.9)
            width, height = int(WIDTH * scale), int(HEIGHT * scale)
            left, top = rng.integers(0, picture.width - width), rng.integers(0, picture.height - height)
            part = picture.crop((left, top, left + width, top + height)).resize((WIDTH, HEIGHT))
            pixels = (np.asarray(part) + rng.normal(0, 6, (HEIGHT, WIDTH, 3))).clip(0, 255).astype(np.uint8)
            path = folder / ("train" if number < train else "val") / name / f"{number:04}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path, quality=95, subsampling=2)


def flatout(folder: Path, epochs: int, number: int) -> Run:
    """`flatout train` with a recipe."""
    output = folder / f"flatout-{number}-{epochs}"
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE)
    command = [
        sys.executable,
        "-m",
        "flatout",
        "train",
        str(recipe),
        "--data",
        str(folder / "set"),
        "--output",
        str(output),
    ]
    cpu_s, wall_s = _taken([*command, "--set", f"training.epochs={epochs}", "--set", f"training.seed={number}"])
    rows = list(csv.DictReader((output / "metrics.csv").read_text().splitlines()))
    return Run(cpu_s, wall_s, max(float(row["val/acc1"]) for row in rows))


def timm(folder: Path, epochs: int, number: int) -> Run:
    """Timm's script, with the same settings as options."""
    name = f"timm-{number}-{epochs}"
    options = {
        "data-dir": folder / "set", "train-split": "train", "val-split": "val", "num-classes": len(CLASSES),
        "model": MODEL, "img-size": EDGE, "batch-size": BATCH, "epochs": epochs, "opt": "sgd", "lr": RATE,
        "weight-decay": 2e-5, "sched": "cosine", "warmup-epochs": 0, "cooldown-epochs": 0, "min-lr": 0,
        "smoothing": 0.1, "color-jitter": 0, "workers": WORKERS, "device": "cpu", "seed": number,
        "output": folder, "experiment": name,
        "crop-pct": 0.875, "mean": "0.485 0.456 0.406", "std": "0.229 0.224 0.225", "train-interpolation": "bilinear",
    }  # fmt: skip
    command = [sys.executable, str(folder / "train.py")]
    for option, value in options.items():
        command += [f"--{option}", *str(value).split(" ")]
    cpu_s, wall_s = _taken(command)
    rows = list(csv.DictReader((folder / name / "summary.csv").read_text().splitlines()))
    return Run(cpu_s, wall_s, max(float(row["eval_top1"]) for row in rows) / 100)


def main() -> None:
    """Measure in turn, and print or write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--timm", type=Path, required=True, help="a clone of pytorch-image-models")
    options.add_argument("--images", type=int, default=100, help="of a class, to train on; a quarter more to validate")
    options.add_argument("--epochs", type=int, nargs=2, default=(2, 8))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    checkout = Checkout(chosen.timm)
    few, more = chosen.epochs
    runs: dict[str, list[tuple[Run, Run]]] = {"flatout train": [], "timm's train.py": []}
    with tempfile.TemporaryDirectory(prefix="beside-timm-") as temporary:
        folder = Path(temporary)
        make_images(folder / "set", chosen.images, chosen.images // 4)
        (folder / "train.py").write_text(checkout.text("train.py"))
        for number in range(chosen.rounds):
            for name, train in (("flatout train", flatout), ("timm's train.py", timm)):
                runs[name].append((train(folder, few, number), train(folder, more, number)))
                print(name, number, runs[name][-1], file=sys.stderr, flush=True)
    text = "\n".join(_page(runs, chosen, checkout.commit())) + "\n"
    if chosen.output:
        chosen.output.write_text(text)
    print(text)


def _page(runs: dict[str, list[tuple[Run, Run]]], chosen: argparse.Namespace, commit: str) -> list[str]:
    few, more = chosen.epochs
    packages = ("flatout", "torch", "torchvision", "timm", "pytorch-lightning")
    images = chosen.images * len(CLASSES)
    sys.argv[sys.argv.index("--timm") + 1] = "CHECKOUT"  # no path of this machine stands in a page
    lines = head("Whole trainings beside timm's script", "benchmarks/training/beside_timm.py", packages, {})
    lines += [
        f"- train.py of github.com/huggingface/pytorch-image-models at {commit} (Apache-2.0) with the installed timm.",
        f"- {MODEL} at {EDGE} pixels on a CPU, {WORKERS} workers; {images} JPEGs of {WIDTH} x {HEIGHT} to train on,"
        f" {images // 4} to validate,",
        f"  of {len(CLASSES)} classes; batches of {BATCH}, SGD at {RATE}, cosine, crops and flips, smoothing 0.1.",
        f"- {chosen.rounds} rounds in turn, seeds 0 to {chosen.rounds - 1}: each with {few} and with {more} epochs. An",
        "  epoch: the difference, divided; validation included, whose images do not count. CPU: of the command and its",
        "  workers.",
        "- Median of the rounds (least to most).",
        "",
        "| command | CPU s an epoch | s an epoch | images/s of it | start-up CPU s | best accuracy |",
        "|---|---|---|---|---|---|",
    ]
    cpu = {}
    for name, pairs in runs.items():
        cpu[name] = [(b.cpu_s - a.cpu_s) / (more - few) for a, b in pairs]
        wall = [(b.wall_s - a.wall_s) / (more - few) for a, b in pairs]
        start = [a.cpu_s - few * one for (a, _), one in zip(pairs, cpu[name], strict=True)]
        accuracy = statistics.median(b.accuracy for _, b in pairs)
        rate = images / statistics.median(wall)
        lines.append(
            f"| {name} | {_spread(cpu[name])} | {_spread(wall)} | {rate:.0f} | {_spread(start)} | {accuracy:.1%} |"
        )
    ours, theirs = cpu.values()
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    met = "met" if ratio >= 1.5 else "missed"
    return [*lines, "", f"- goal, at least 1.5x less CPU an epoch with the same accuracy: {ratio:.2f}x, {met}"]


def _taken(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of a command with all processes that it waited for."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        if running.returncode:
            said.seek(0)
            raise SystemExit(said.read().decode(errors="replace")[-3000:])
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
