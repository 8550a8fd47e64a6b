"""The class list: the classes of a set, in the order of their indices, and the drawing of a subset."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from flatout.errors import UsageError

CLASSES_FILE = "classes.json"


def draw_classes(names: Sequence[str], count: int, seed: int, option: str) -> list[str]:
    """``count`` of the class names, sorted: ``random.Random(seed).sample(sorted(names), count)``.

    Args:
        names: of all classes.
        count: how many to draw.
        seed: of the draw.
        option: that asked for it, for the error.

    Raises:
        UsageError: there are fewer.
    """
    if count > len(names):
        raise UsageError(f"{option} {count}: there are only {len(names)} classes")
    return sorted(random.Random(seed).sample(sorted(names), count))


def class_list_text(classes: Sequence[str]) -> str:
    """The content of ``CLASSES_FILE``: a JSON list, one name a line."""
    return json.dumps(list(classes), indent=0) + "\n"
