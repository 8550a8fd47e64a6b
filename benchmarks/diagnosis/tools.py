"""Asking each tool what holds a script back, and reading its answer in one form."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flatout.measure.thresholds import MATERIAL_SHARE

FLATOUT, TRAIN_DOCTOR, TRACEML = "flatout", "train-doctor", "traceml-ai"
VERSIONS = {TRAIN_DOCTOR: "0.2.0", TRACEML: "0.5.0"}
HEALTHY = "compute_bound"
# What a benchmark that keeps the trainings to few threads plants into all of them.
OF_BENCHMARK = "too_few_threads"
# Import and the first batch, before any tool begins to measure; and the end of the slowest one.
_START_S, _END_S = 12.0, 120.0

_COMPUTING = ("cpu_decode", "cpu_transform", "cpu_tokenise", "cpu_read", "row_lookup")
# Which of flatout's causes each verdict is taken for. Generous: a verdict is right where any of them was planted.
MEANS: dict[str, dict[str, tuple[str, ...]]] = {
    TRAIN_DOCTOR: {
        "dataloader_bound": ("no_workers",),
        "cpu_bound_preprocessing": (*_COMPUTING, "slow_collate", "read_amplification"),
        "checkpoint_in_hot_loop": ("checkpoint",),
        "logging_in_hot_loop": ("logging",),
        "small_batch": ("small_batch",),
        "grad_accumulation_small_micro_batch": ("small_batch",),
        "host_sync_in_loop": ("device_sync",),
        "pin_memory_off": ("h2d",),
        # Advice without a measured loss: taken for "nothing is wrong".
        "no_torch_compile": (HEALTHY,),
        "no_mixed_precision": (HEALTHY,),
        "no finding": (HEALTHY,),
    },
    TRACEML: {
        "INPUT_BOUND": (
            *("no_workers", "too_few_workers", "too_many_workers", *_COMPUTING, "slow_collate"),
            *("storage_latency", "storage_bandwidth", "small_files", "cold_cache", "read_amplification"),
            *("lock_contention", "sample_skew", "large_batches", "shallow_prefetch", "worker_restart", "epoch_start"),
        ),
        "COMPUTE_BOUND": (HEALTHY,),
        "BALANCED": (HEALTHY,),
        "RESIDUAL_HEAVY": ("main_process_work", "logging", "checkpoint", "validation"),
        "STRAGGLER": ("rank_straggler",),
        "INPUT_STRAGGLER": ("rank_straggler",),
        "COMPUTE_STRAGGLER": ("rank_straggler",),
    },
}


@dataclass
class Answer:
    """What a tool said of one run.

    Attributes:
        verdicts: Its own ids, the first one first; empty: it gave no answer.
        failure: Why it gave none.
        rate_sps: Samples a second in its window, all time counted.
        steps_ps: Steps a second.
        unaccounted: Share of the window that it could not place.
        confidence: Of the first verdict, 0 to 1.
        shares: Verdict -> the share of the time that it says is lost.
        gains: Remedy -> predicted factor, low, high.
    """

    verdicts: list[str] = field(default_factory=list)
    failure: str | None = None
    rate_sps: float | None = None
    steps_ps: float | None = None
    unaccounted: float | None = None
    confidence: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    gains: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For the file of results."""
        return asdict(self)


def ask(tool: str, python: str, script: Sequence[str], ranks: int, folder: Path, seconds: float) -> Answer:
    """Run a script under a tool for about ``seconds`` of training.

    Args:
        tool: FLATOUT, TRAIN_DOCTOR or TRACEML.
        python: The interpreter that has the rivals; the same training runs under each tool.
        script: The file and its arguments.
        ranks: Processes that torchrun starts; 0 runs the script by itself.
        folder: An empty one to run in.
        seconds: Of training, at least.
    """
    start = [python, *script]
    if ranks:
        start = [python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone", *script]
    return {FLATOUT: _flatout, TRAIN_DOCTOR: _train_doctor, TRACEML: _traceml}[tool](python, start, folder, seconds)


def _flatout(python: str, start: list[str], folder: Path, seconds: float) -> Answer:
    options = ["--json", "--seconds", str(seconds)]
    done = _run([sys.executable, "-m", "flatout", "profile", *options, "--", *start], folder, seconds + _END_S)
    try:
        report = json.loads(done)
    except ValueError:
        return Answer(failure=f"no report: {done[-300:]}")
    ledger = report["ledger"]
    causes = report["causes"]
    if "OMP_NUM_THREADS" in os.environ:
        causes = _without(OF_BENCHMARK, causes)
    return Answer(
        verdicts=[cause["id"] for cause in causes] or [HEALTHY],
        rate_sps=ledger["steps"]["samples"] / ledger["window_s"] if ledger["window_s"] else None,
        steps_ps=ledger["steps"]["count"] / ledger["window_s"] if ledger["window_s"] else None,
        unaccounted=abs(ledger["unaccounted_s"]) / ledger["window_s"] if ledger["window_s"] else None,
        confidence=causes[0]["confidence"] if causes else None,
        shares={cause["id"]: cause["share"] for cause in causes},
        gains={
            remedy["id"]: tuple(remedy["gain"][key] for key in ("predicted", "low", "high"))
            for remedy in reversed(report["remedies"])
            if remedy["gain"]
        },
    )


def _without(planted: str, causes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The causes without one: where no other is material, the healthy answer leads, as it would have."""
    left = [cause for cause in causes if cause["id"] != planted]
    others = [cause for cause in left if cause["id"] != HEALTHY]
    if any(cause["share"] >= MATERIAL_SHARE for cause in others):
        return left
    return [cause for cause in left if cause["id"] == HEALTHY] + others


def _train_doctor(python: str, start: list[str], folder: Path, seconds: float) -> Answer:
    options = ["--seconds", str(seconds), "--profiler-steps", "0", "--out", str(folder / "records")]
    done = _run([python, "-m", "train_doctor", "profile", *options, "--", *start], folder, seconds + _END_S)
    reports = list((folder / "records").glob("*/report.json"))
    if not reports:
        return Answer(failure=done[-300:])
    report = json.loads(reports[0].read_text())
    if not (report["evidence"].get("steps") or {}).get("measured"):
        return Answer(failure="it measured no steps")
    found = sorted(report["findings"], key=lambda finding: -finding["score"])
    return Answer(
        verdicts=[finding["id"] for finding in found] or ["no finding"],
        shares={finding["id"]: finding["score"] for finding in found},
    )


def _traceml(python: str, start: list[str], folder: Path, seconds: float) -> Answer:
    ranks = [part for part in start if part.startswith("--nproc-per-node=")]
    script = start[start.index("--standalone") + 1 :] if ranks else start[1:]
    ports = ["--aggregator-port", str(_free_port()), "--master-port", str(_free_port())]
    command = [python, "-m", "traceml_ai.launcher.cli", "run", script[0], "--logs-dir", str(folder / "records"), *ports]
    # It has no bound of its own: Ctrl-C ends the training, and it sums up what it saw.
    done = _run([*command, *ranks, "--args", *script[1:]], folder, seconds + _START_S, signal.SIGINT)
    reports = list((folder / "records").glob("*/final_summary.json"))
    if not reports:
        return Answer(failure=done[-300:])
    report = json.loads(reports[0].read_text())
    kind = report["primary_diagnosis"]["kind"]
    known = kind in MEANS[TRACEML]
    return Answer(verdicts=[kind] if known else [], failure=None if known else report["primary_diagnosis"]["summary"])


def _run(command: list[str], folder: Path, limit_s: float, ending: int = signal.SIGTERM) -> str:
    """Output of a command, which is ended with all that it started when its time is up."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(ending)
            try:
                out, err = process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
    return out if out.strip() else err


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
