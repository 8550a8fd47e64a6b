"""Proved gains, from what ``flatout fix --json`` or ``flatout try --json`` wrote."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import UsageError
from flatout.measure.timeline import Floats

_NORMAL90 = 1.645
MOST_BYTES = 50_000_000
LARGEST = 1e9


@dataclass(frozen=True)
class Gain:
    """A factor on throughput that pairs of runs proved, with its 90% interval."""

    factor: float
    low: float
    high: float

    def draw(self, draws: int, seed: int = 1) -> Floats:
        """Log-normal draws with this median and interval."""
        deviation = (math.log(self.high) - math.log(self.low)) / (2 * _NORMAL90)
        drawn: Floats = self.factor * np.exp(deviation * np.random.default_rng(seed).standard_normal(draws))
        return drawn


def read_gain(file: Path) -> Gain:
    """Read the proof of a fix, or that of the best candidate of a try.

    Raises:
        UsageError: the file is no such JSON, or nothing was proved.
    """
    try:
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f"--after {file}: is larger than what flatout fix --json writes")
        found = json.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"--after {file}: cannot be read ({why})") from None
    except (json.JSONDecodeError, RecursionError):
        raise UsageError(
            f"--after {file}: is no JSON: give what flatout fix --json or flatout try --json wrote"
        ) from None
    if not isinstance(found, dict) or not ("proof" in found or "candidates" in found):
        raise UsageError(f"--after {file}: is neither of flatout fix --json nor of flatout try --json")
    numbers = _of_fix(found) if "proof" in found else _of_try(found)
    if numbers is None:
        raise UsageError(f"--after {file}: nothing was proved there: plan without --after")
    values = [value for value in numbers if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(values) < 3 or not all(0 < value < LARGEST for value in values):
        raise UsageError(
            f"--after {file}: its gain and its interval are {numbers}, must be numbers above 0, below {LARGEST:,.0f}"
        )
    factor, low, high = (float(value) for value in values)
    return Gain(factor, min(low, factor), max(high, factor))


def _of_fix(found: dict[str, Any]) -> list[Any] | None:
    proof = found["proof"]
    if not isinstance(proof, dict) or proof.get("loss_passed") is not True:
        return None
    return [proof.get(key) for key in ("speedup", "low", "high")]


def _of_try(found: dict[str, Any]) -> list[Any] | None:
    candidates = found["candidates"]
    if found.get("proved") is not True or not isinstance(candidates, list) or not candidates:
        return None
    ratio = candidates[0].get("ratio") if isinstance(candidates[0], dict) else None
    return [ratio.get(key) for key in ("factor", "low", "high")] if isinstance(ratio, dict) else None
