#!/usr/bin/env python3
"""The training loop of the reference pipeline against a plain loop and timm's parts; fed from JPEGs against synthetic.

    python benchmarks/training/run.py                    # on a GPU: ResNet-50 and EfficientNet-B4, compile off and on
    python benchmarks/training/run.py --tiny             # on a CPU: what a step of the loop itself costs
    python benchmarks/training/run.py --data FOLDER      # and fed from class folders of JPEGs
    python benchmarks/training/run.py --output FILE.md

Loops take turns, each round in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from loops import FLATOUT, LOOPS, PLAIN, TIMM, decode_rate, device, fed_loop

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from conditions import head

from flatout.machine.snapshot import take_snapshot
from flatout.recipes.data_config import resolve_images
from flatout.recipes.reading import read_recipe
from flatout.recipes.schema import Recipe

MODELS = ("resnet50", "tf_efficientnet_b4")
ONE_RUN_WITHIN_S = 900
FED = "flatout, fed from JPEGs"


def main() -> int:
    """Measure and print."""
    options = _options()
    if options.one:
        print(json.dumps(_one(options.one, options)))
        return 0
    lines = _head(options)
    for model in options.models:
        for compiled in options.compile:
            lines += _compare(model, compiled, options)
    page = "\n".join(lines)
    print(page)
    if options.output:
        options.output.write_text(page + "\n", "utf-8")
    return 0


def _recipe(model: str, compiled: str, options: argparse.Namespace) -> Recipe:
    settings = [
        f"model.name={model}",
        f"images.size={options.size}",
        f"training.batch_size={options.batch_size}",
        f"training.compile={compiled}",
        f"training.precision={options.precision}",
        "training.epochs=1",
        "schedule.warmup_epochs=0",
        "logging.every_steps=1000000",
    ]
    if options.data:
        settings += [f"data.root={options.data}", "data.validation=null", "data.train=null"]
    return resolve_images(read_recipe("imagenet-resnet50", settings))[0]


def _one(name: str, options: argparse.Namespace) -> dict[str, float]:
    warnings.simplefilter("ignore")
    recipe = _recipe(options.models[0], options.compile[0], options)
    if name == "loader":
        return {"rate": decode_rate(recipe)}
    run = fed_loop if name == FED else next(loop.step_s for loop in LOOPS if loop.name == name)
    step = run(recipe, options.warm_up, options.steps)
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return {"step_s": step, "rate": options.batch_size / step, "device_gib": memory}


def _measure(name: str, model: str, compiled: str, options: argparse.Namespace) -> dict[str, float] | str:
    words = ["--one", name, "--models", model, "--compile", compiled, "--size", str(options.size)]
    words += ["--precision", options.precision, "--batch-size", str(options.batch_size), "--steps", str(options.steps)]
    words += ["--warm-up", str(options.warm_up), *(["--data", str(options.data)] if options.data else [])]
    try:
        done = subprocess.run(
            [sys.executable, __file__, *words], capture_output=True, text=True, timeout=ONE_RUN_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return f"longer than {ONE_RUN_WITHIN_S} s"
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    made: dict[str, float] = json.loads(found[-1])
    return made


def _compare(model: str, compiled: str, options: argparse.Namespace) -> list[str]:
    names = [loop.name for loop in LOOPS] + ([FED] if options.data else [])
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    for number in range(options.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            print(f"training: {model}, compile {compiled}, round {number + 1}, {name}", file=sys.stderr, flush=True)
            made = _measure(name, model, compiled, options)
            if isinstance(made, str):
                failed[name] = made
            else:
                runs[name].append(made)
    lines = [f"## {model}, compile {compiled}, batch {options.batch_size}, {options.size} px", ""]
    lines += ["| loop | ms/step | samples/s | flatout / it | GPU memory GiB |", "|---|---|---|---|---|"]
    for name in names:
        if not runs[name]:
            lines.append(f"| {name} | not measured: {failed.get(name)} | | | |")
            continue
        ratios = [a["rate"] / b["rate"] for a, b in zip(runs[FLATOUT], runs[name], strict=False)]
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})" if ratios else ""
        step, rate, memory = (statistics.median(one[k] for one in runs[name]) for k in ("step_s", "rate", "device_gib"))
        lines.append(f"| {name} | {1e3 * step:.2f} | {rate:.0f} | {spread} | {memory:.1f} |")
    lines.append("")
    for name in (PLAIN, TIMM):
        if runs[FLATOUT] and runs[name]:
            found = statistics.median(a["rate"] / b["rate"] for a, b in zip(runs[FLATOUT], runs[name], strict=False))
            lines.append(f"- goal, at least 1.00 of {name}: {found:.3f}, {'met' if found >= 0.995 else 'NOT met'}")
    if runs.get(FED) and runs[FLATOUT]:
        found = statistics.median(a["rate"] / b["rate"] for a, b in zip(runs[FED], runs[FLATOUT], strict=False))
        alone = _measure("loader", model, compiled, options)
        ceiling = alone if isinstance(alone, str) else f"the loader alone delivers {alone['rate']:.0f} images/s"
        lines.append(f"- goal, fed at least 0.95 of synthetic: {found:.3f}, {'met' if found >= 0.95 else 'NOT met'}")
        lines.append(f"- {ceiling} on {take_snapshot().one_line()}")
    return [*lines, ""]


def _head(options: argparse.Namespace) -> list[str]:
    where = torch.cuda.get_device_name() if device().type == "cuda" else "the CPU"
    packages = ("flatout", "torch", "torchvision", "timm", "pytorch-lightning")
    return [
        *head("The training loop", "benchmarks/training/run.py", packages, {}, where),
        f"- {options.rounds} rounds, taking turns, each in a process of its own: {options.warm_up} steps of warm-up, "
        f"then {options.steps} steps timed as a whole. Median of rounds; ratios of the same round (least-most).",
        *(f"- {loop.name}: {loop.about}" for loop in LOOPS),
        "",
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a small model on small images: the cost of the loop")
    parser.add_argument("--models", nargs="+", help=f"models of timm (default: {' '.join(MODELS)})")
    parser.add_argument("--compile", nargs="+", choices=["off", "default"], help="(default: off default)")
    parser.add_argument("--batch-size", type=int, metavar="N", help="(default: 256 on a GPU with 40 GiB or more)")
    parser.add_argument("--size", type=int, metavar="PX", help="side of the images (default: 224)")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16", "fp16"], default="auto", help="(default: auto)")
    parser.add_argument("--steps", type=int, metavar="N", help="timed steps (default: 100)")
    parser.add_argument("--warm-up", type=int, metavar="N", help="(default: 30)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="class folders of JPEGs, to feed from")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write the page there, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tiny = options.tiny
    options.models = options.models or (["test_resnet"] if tiny else list(MODELS))
    options.compile = options.compile or (["off"] if tiny else ["off", "default"])
    options.size = options.size or (32 if tiny else 224)
    options.steps = options.steps or (300 if tiny else 100)
    options.warm_up = options.warm_up or (50 if tiny else 30)
    if options.batch_size is None:
        large = torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory > 40 * 2**30
        options.batch_size = 2 if tiny else 256 if large else 64
    if not tiny and not options.one and device().type == "cpu":
        parser.error("there is no CUDA device: --tiny measures what the loop itself costs on a CPU")
    if options.rounds < 1 or options.steps < 1:
        parser.error("--rounds and --steps must be above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
