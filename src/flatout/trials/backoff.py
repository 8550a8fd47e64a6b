"""The next smaller value of a remedy that ran out of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.probe.settings import SETTINGS
from flatout.results import Diagnosis


def smaller(settings: Mapping[str, Any], kept: Mapping[str, Any], first: Diagnosis | None) -> Mapping[str, Any] | None:
    """The settings half way back to the present value.

    Args:
        settings: of the trial that failed.
        kept: settings that earlier trials proved.
        first: the diagnosis of the original training, with its DataLoader's settings.

    Returns:
        None if no value lies between.
    """
    for name, value in settings.items():
        if not SETTINGS[name].halved or not isinstance(value, int):
            continue
        present = kept.get(name, _recorded(first, name))
        middle = (value + present) // 2
        if middle <= present:
            return None
        followers = {
            other: factor * middle / value for other, factor in settings.items() if SETTINGS[other].follows == name
        }
        return {**settings, name: middle, **followers}
    return None


def _recorded(first: Diagnosis | None, name: str) -> int:
    value = first.loader.get(name) if first is not None else None
    return value if isinstance(value, int) else SETTINGS[name].default
