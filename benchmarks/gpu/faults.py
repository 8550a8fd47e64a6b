"""Faults of the device side, planted into an ordinary training: whether the report names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from running import Bench
from section import Row, Section

# fault -> what the report has to name among its first two causes, or among its remedies and findings
EXPECTED: dict[str, tuple[str, ...]] = {
    "none": ("cause compute_bound",),
    "sync_in_the_loop": ("cause device_sync",),
    "tiny_kernels": ("cause overhead_bound", "cause small_batch"),
    "pageable_copies": ("cause h2d",),
    "fp32_where_tf32_serves": ("remedy tf32", "finding tf32"),
    "small_batch": ("cause small_batch", "remedy bigger_batch"),
    "cudnn_benchmark_off": ("remedy cudnn_benchmark",),
    "idle_gpu": ("cause main_process_work",),
}


def _items(bench: Bench) -> dict[str, Callable[[], Row]]:
    return {fault: lambda fault=fault: _planted(bench, fault) for fault in EXPECTED}


def _planted(bench: Bench, fault: str) -> Row:
    small = ("--batch-size", 4, "--width", 4, "--size", 16, "--workers", 0)
    window = ("--steps", 12) if bench.dry else ("--seconds", 4)
    report, _ = bench.profile(bench.script("planted.py", fault, *(small if bench.dry else ())), window)
    causes = [cause["id"] for cause in report["causes"]]
    named = [f"cause {cause}" for cause in causes[:2]]
    named += [f"remedy {remedy['id']}" for remedy in report["remedies"]]
    named += [f"finding {finding['id']}" for finding in report["findings"]]
    met = any(name in named for name in EXPECTED[fault])
    return Row([", ".join(causes) or "none", _others(report), _expected(fault), _accounts(report)], met)


def _others(report: dict[str, Any]) -> str:
    named = {remedy["id"] for remedy in report["remedies"]} | {finding["id"] for finding in report["findings"]}
    return ", ".join(sorted(named)) or "none"


def _expected(fault: str) -> str:
    return " or ".join(EXPECTED[fault])


def _accounts(report: dict[str, Any]) -> str:
    largest = sorted(report["ledger"]["accounts"], key=lambda account: -account["seconds"])[:3]
    return ", ".join(f"{account['id']} {100 * account['share']:.0f}%" for account in largest)


FAULTS = Section(
    "faults",
    "Planted faults",
    "the fault is among the first two causes, or in what the report offers",
    7,
    ("causes, in order", "remedies and findings", "expected", "largest accounts"),
    _items,
)
