"""The next smaller value of a remedy that ran out of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.results import Diagnosis

# Values that grow memory, and the least that makes sense.
_LEAST = {"num_workers": 1, "prefetch_factor": 1, "batch_size": 1}


def smaller(settings: Mapping[str, Any], kept: Mapping[str, Any], first: Diagnosis | None) -> Mapping[str, Any] | None:
    """Half way back to what runs now.

    Args:
        settings: of the trial that failed.
        kept: what runs now, as far as trials changed it.
        first: the diagnosis of the training as it is, which says what it started with.

    Returns:
        None when there is nothing between.
    """
    for name in ("batch_size", "num_workers", "prefetch_factor"):
        value = settings.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        now = kept.get(name, _now(first, name))
        middle = (value + now) // 2
        if middle <= now or middle < _LEAST[name]:
            return None
        changed = {**settings, name: middle}
        if name == "batch_size" and "lr_factor" in settings:
            changed["lr_factor"] = settings["lr_factor"] * middle / value
        return changed
    return None


def _now(first: Diagnosis | None, name: str) -> int:
    loader = first.loader if first is not None else {}
    value = loader.get(name)
    if isinstance(value, int):
        return value
    return 2 if name == "prefetch_factor" else 0
