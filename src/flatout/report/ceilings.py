"""Measured ceilings as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flatout.ceilings.measuring import Ceilings
from flatout.units import factor, percent

_PARTS = {
    "device": "the device and the loop",
    "preparation": "preparing batches takes longer than that by",
    "io": "and getting their bytes the first time by",
    "overlap_loss": "both at once: shared cores, hand-over, pauses",
}


def lines(found: Ceilings) -> list[str]:
    """For a terminal."""

    def row(what: str, rate_sps: float | None) -> str:
        known = "not measured" if rate_sps is None else f"{rate_sps:12,.1f}   {factor(rate_sps / found.train_sps)}"
        return f"  {what:48}{known:>12}"

    text = [
        f"Batches that cost nothing would make this training {factor(found.headroom)} as fast.",
        "",
        f"  {'':48}{'samples/s':>12}",
        row("the training as it is", found.train_sps),
        row("batches replayed: the device and the loop alone", found.device_sps),
        row("the data path alone, new batches", found.loader_cold_sps),
        row("the data path alone, the same batches again", found.loader_warm_sps),
        "",
    ]
    parts = found.parts()
    if not parts:
        return [*text, "The data path alone was not measured; the messages above may say why."]
    shares = (f"  {_PARTS[name]:52}{percent(part):>8}" for name, part in parts.items())
    return [*text, "Of the time of a sample:", *shares]


def to_dict(found: Ceilings) -> dict[str, Any]:
    """For ``--json``: rates in samples/s, and the shares of the time of a sample."""
    return {**asdict(found), "headroom": found.headroom, "parts": found.parts()}
