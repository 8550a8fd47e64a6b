"""The guide for coding agents: rules, each with the case it comes from, the machine's numbers, and the commands."""

from __future__ import annotations

import shutil
from pathlib import Path

from flatout.machine.snapshot import Machine
from flatout.plans.gpu_parts import GpuPart
from flatout.units import size

# What happened where the rule was not followed, in a few words.
RULES: tuple[tuple[str, str], ...] = (
    (
        "Measure before you choose. Run `flatout profile -- COMMAND` for 30 s before you set a batch size, a number of "
        "workers or anything else for speed",
        "the number of workers was guessed, and never looked at",
    ),
    (
        "Name the device that you see and the one that you assume; they are two facts",
        "a plan for an A10 with 24 GB ran on an A100 with 40 GB",
    ),
    (
        "Plan before a long run: `flatout plan --deadline 11m --epochs 30 --folds 5 -- COMMAND`. If what is asked for "
        "does not fit, start with a row of its table that does",
        "5 folds of 30 epochs were begun with 11 minutes to go: 13 of the 150 epochs were done by then",
    ),
    (
        "Make a valid result first: one fold, few epochs, a prediction and its file. Better ones replace it",
        "at the deadline the first of five folds was still in training",
    ),
    (
        "Keep time for the prediction and for writing its file: `--reserve` of `flatout plan`, `--max-time` of "
        "`flatout train`",
        "of 660 s, 667 went into training alone",
    ),
    (
        "One change at a time, and `flatout try` after each: `git diff | flatout try --patch - -- COMMAND`. Exit code "
        "0 is proved faster and the same training; 1 is not",
        "five options were changed together, and nobody knew which one helped",
    ),
    (
        "Never quote an expected factor as measured, and never multiply factors that remove the same waiting: no "
        "change gives more than the removal of all waiting would",
        "a page promised 10x to 15x from factors whose product is 3.8x",
    ),
    (
        "Throughput and less work are two numbers. Fewer epochs, folds or images are less work, not speed",
        '"74x faster" was 5x the speed and 15x less work',
    ),
    (
        "Compare samples/s, not it/s, when the batch size differs",
        "it/s at batch 256 and at 384 were compared",
    ),
    (
        "Take workers from the cores that this process may use, as above, not from `os.cpu_count()`",
        "workers = min(8, os.cpu_count() / 2) in a container with a quota starts more than it can feed",
    ),
    (
        "Where the training waits for data, change the data path; compiling, precision and batch size do not help yet",
        "0 % GPU use, and compile, TF32 and a larger batch were proposed",
    ),
    (
        "A memory estimate counts activations, not the input: `flatout memory -- COMMAND`",
        '"batch 2 costs 5.3 MB more" with 77 of 80 GB in use',
    ),
    (
        "A loss that falls while validation stays at chance is a fault in the labels, not a lack of patience: stop",
        "10 epochs at 1.2 % of 100 classes were called expected",
    ),
    (
        "Stop when the projected end passes the deadline: `flatout watch --deadline 11m --epochs 30` says when",
        "nobody computed that 51 s an epoch are 128 min for 150 epochs",
    ),
)
# Purpose and command, in the order in which they are needed; a test runs them through the command line's parser.
COMMANDS: tuple[tuple[str, str], ...] = (
    ("where the time goes, and what to do", "flatout profile --seconds 30 --json -- COMMAND"),
    ("what fits into the time", "flatout plan --deadline 11m --epochs 30 --folds 5 --json -- COMMAND"),
    ("try remedies, without edits", "flatout fix --budget 5m --json -- COMMAND"),
    ("judge your own edit", "flatout try --patch change.diff --json -- COMMAND"),
    ("judge a setting", "flatout try --set num_workers=4 --json -- COMMAND"),
    ("the batch size that pays", "flatout batch-size --json -- COMMAND"),
    ("GPU memory by batch size", "flatout memory --json -- COMMAND"),
    ("which of two is faster", "flatout compare --json RUN RUN"),
    ("what a cause means", "flatout explain CAUSE"),
    ("a log of somebody's run", "flatout read --json train.log"),
    ("a run while it goes on", "flatout watch --json --deadline 11m RUN"),
    ("data next to the GPU", "flatout stage SOURCE DEST"),
    ("recipes, and the keys of one", "flatout recipes demo --keys"),
    ("train images inside a deadline", "flatout train RECIPE --data FOLDER --max-time 11m"),
    (
        "the same with folds and a submission",
        "flatout train demo --data FOLDER --max-time 90s --set folds.count=2 --set data.test=test",
    ),
    ("predict", "flatout infer FOLDER --data FOLDER --output submission.csv"),
)


def guide_lines(machine: Machine, folder: Path, assumed: GpuPart | None = None) -> list[str]:
    """The guide as Markdown, at most 120 lines.

    Args:
        machine: whose numbers it gives.
        folder: on whose disk data and runs would lie.
        assumed: a GPU that is planned for; its numbers are its maker's.
    """
    lines = ["## Fast training with flatout", "", "### This machine, as measured", ""]
    lines += [f"- {line}" for line in _machine_lines(machine, folder)]
    if assumed is not None:
        lines += ["", "### Assumed, and not measured here", "", *(f"- {line}" for line in _assumed_lines(assumed))]
    lines += ["", "### Rules", "", "Each comes from a run that went wrong; in brackets what happened.", ""]
    lines += [f"{number}. {rule}. ({why[0].upper()}{why[1:]}.)" for number, (rule, why) in enumerate(RULES, 1)]
    lines += ["", "### Commands", "", "| to know or do | command |", "|---|---|"]
    lines += [f"| {purpose} | `{command}` |" for purpose, command in COMMANDS]
    lines += [
        "",
        "COMMAND is the training as you start it; no file is edited, and trials of `fix` and `try` see a private view "
        "of the disks where the kernel allows it. Exit code 2 is a mistake in the call: one line on standard error "
        "says which. Every figure is measured unless it is called predicted; what could not be measured says why.",
    ]
    return lines


def _assumed_lines(part: GpuPart) -> list[str]:
    peaks = ", ".join(f"{name} {value / 1e12:g}" for name, value in part.peaks.items())
    return [
        f"{part.name}: {size(part.memory_bytes)}, {part.bandwidth / 1e9:,.0f} GB/s, peak TFLOP/s {peaks} "
        f"({part.source}, {part.date:%Y-%m-%d})",
        "cores, memory and disks of the machine that it will be in are not known: look again there, with "
        "`flatout agents`",
        "what a training recorded on another GPU would do on it, predicted: "
        f"`flatout plan --deadline 2h --epochs 90 --gpu {part.name} RUN`",
    ]


def _machine_lines(machine: Machine, folder: Path) -> list[str]:
    cores = machine.cores
    lines = [f"{machine.one_line()}"]
    if cores.usable is not None:
        workers = max(int(cores.usable) - 1, 1)
        named = "worker that computes" if workers == 1 else "workers that compute"
        lines.append(f"at most {workers} DataLoader {named}: one core is the training's")
    if machine.shm.size_bytes is not None:
        lines.append(f"/dev/shm, through which workers hand over batches: {size(machine.shm.size_bytes)}")
    lines.append(f"free on the disk of {folder}: {size(shutil.disk_usage(folder).free)}")
    if machine.gpus is None:
        lines.append(f"GPU: not measured, because {machine.not_measured.get('gpus', 'it could not be read')}")
    return lines
