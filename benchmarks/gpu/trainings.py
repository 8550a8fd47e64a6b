"""GPU tests, our training loop against others, decoders on the GPU, and two trainings that share it."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

from running import ROOT, Bench, Failed, found_result
from section import Row, Section

sys.path.append(str(ROOT))
LOOPS = ("flatout", "plain loop", "timm's parts")
_MARK = "@pytest.mark.gpu"
LEAST = 0.97  # of the other loop's rate: what remains is noise between rounds


def _tests(bench: Bench) -> dict[str, Callable[[], Row]]:
    return {"pytest -m gpu": lambda: _pytest(bench)}


def _pytest(bench: Bench) -> Row:
    only = ["--collect-only"] if bench.dry else ["-rs"]
    # Only their files are collected: a machine with a GPU may lack packages that other tests need.
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if _MARK in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *only, *files]
    out, _ = bench.run(command)
    last = [line for line in out.splitlines() if re.search(r"\d+ (passed|failed|skipped|error|deselected)|tests", line)]
    return Row([last[-1].strip("= ") if last else "nothing was said"], bool(last) and "failed" not in last[-1])


def _loops(bench: Bench) -> dict[str, Callable[[], Row]]:
    cases = {"test_resnet, fp16": ("test_resnet", "fp16", 4, 32)} if bench.dry else {
        "resnet50, bf16": ("resnet50", "auto", 128, 224),
        "resnet50, fp16 with a scaled loss": ("resnet50", "fp16", 128, 224),
        "resnet50, fp32": ("resnet50", "fp32", 64, 224),
    }  # fmt: skip
    return {name: lambda case=case: _loop(bench, *case) for name, case in cases.items()}


def _loop(bench: Bench, model: str, precision: str, batch_size: int, size: int) -> Row:
    rounds, steps, warm_up = (1, 4, 2) if bench.dry else (3, 60, 20)
    rates: dict[str, list[float]] = {name: [] for name in LOOPS}
    for number in range(rounds):
        for name in LOOPS[number % 3 :] + LOOPS[: number % 3]:
            words = ["--one", name, "--models", model, "--compile", "off", "--size", size, "--precision", precision]
            words += ["--batch-size", batch_size, "--steps", steps, "--warm-up", warm_up]
            out, _ = bench.run(bench.script(ROOT / "benchmarks" / "training" / "run.py", *words))
            rates[name].append(_rate(out))
    ours, plain, timm = (rates[name] for name in LOOPS)
    against = [statistics.median(a / b for a, b in zip(ours, theirs, strict=True)) for theirs in (plain, timm)]
    cells = [f"{statistics.median(rates[name]):.0f}" for name in LOOPS] + [f"{ratio:.3f}" for ratio in against]
    return Row(cells, min(against) >= LEAST)


def _rate(out: str) -> float:
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed("the loop printed no result")
    return float(json.loads(lines[-1])["rate"])


def _decoders(bench: Bench) -> dict[str, Callable[[], Row]]:
    return {name: lambda name=name: _decoder(bench, name) for name in ("torchvision", "nvjpeg", "dali")}


def _decoder(bench: Bench, name: str) -> Row:
    from tests.loader.photographs import make_class_folders

    folder = bench.scratch / "photographs"
    if not folder.is_dir():
        side = 64 if bench.dry else 180
        make_class_folders(folder, 2, 16 if bench.dry else 128, side)
    batches, size = (2, 32) if bench.dry else (200, 160)
    made: dict[str, Any] = bench.result(bench.script("decoding.py", name, folder / "train", batches, size))
    if "error" in made:
        return Row([made["error"], ""])  # not there: nothing to measure
    cells = [f"{made['rate']:.0f}", f"{made['difference']:.2f}"]
    return Row(cells, made["same_labels"] and made["difference"] < 2)


def _sharing(bench: Bench) -> dict[str, Callable[[], Row]]:
    return {"two trainings on one GPU": lambda: _shared(bench)}


def _shared(bench: Bench) -> Row:
    sizes = ("--steps", 12, "--batch-size", 4, "--width", 4, "--size", 16) if bench.dry else ("--steps", 300)
    command = bench.script("ordinary.py", *sizes)
    alone = bench.result(command)
    other = bench.start(command)
    try:
        report, said = bench.profile(command)
    finally:
        bench.ended(other)
    beside = found_result(said)
    cells = [f"{alone['step_ms']:.2f}", f"{beside['step_ms']:.2f}", report["verdict"]]
    # The same losses, whoever else uses the GPU; only the order of additions in atomics may differ.
    return Row(cells, max(abs(a - b) for a, b in zip(alone["losses"], beside["losses"], strict=True)) < 0.01)


TESTS = Section("tests", "GPU tests", "all pass", 5, ("result",), _tests)
LOOP = Section(
    "loops",
    "Our training loop against a plain one and timm's parts (images/s)",
    f"at least {LEAST} of each",
    6,
    (*LOOPS, "flatout / plain", "flatout / timm"),
    _loops,
)
DECODERS = Section(
    "decoders",
    "Decoders",
    "the same labels, pixels within 2 of 255 of Pillow's on average",
    2,
    ("images/s", "mean difference to Pillow"),
    _decoders,
)
SHARING = Section(
    "sharing",
    "Two trainings at once",
    "losses are the same as alone",
    2,
    ("ms/step alone", "beside the other", "verdict of the one that was profiled"),
    _sharing,
)
