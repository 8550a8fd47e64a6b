"""``training.batch_size: auto`` of a recipe: the batch size is measured before ``flatout train`` begins."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flatout.terminal_text import progress_lines

if TYPE_CHECKING:
    from flatout.recipes.any_recipe import AnyRecipe

LEAST = 2  # even, for augmentations that mix pairs
_FIRST = {"image-classification": 16}  # measured first; LEAST for other tasks, whose samples are larger
BUDGET_S = 300.0
FOLDER = Path(".flatout/batch-size")


def found_batch_size(
    recipe: str, resolved: AnyRecipe, settings: Sequence[str], flags: Mapping[str, object | None]
) -> int:
    """Measure a recipe's training at growing batch sizes; says what was found.

    Args:
        recipe: as it was given.
        resolved: the same, with any batch size.
        settings: of ``--set``.
        flags: dotted key -> value of the command's own options; None: option not given.

    Raises:
        UsageError: under several processes, or there is no time to measure two sizes.
        CommandError: the recipe cannot be trained.
    """
    from flatout.errors import UsageError
    from flatout.report.batch_size import verdict
    from flatout.trials.batch_attempt import find_batch_size
    from flatout.trials.batch_finding import SizeOptions
    from flatout.trials.locations import find_locations

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            "training.batch_size: auto is measured by one process: train without torchrun once, "
            "and write the size that it finds into the recipe"
        )
    words = [sys.executable, "-m", "flatout", "train", recipe]
    for text in settings:
        words += ["--set", text]
    if flags.get("data.root") is not None:
        words += ["--data", str(flags["data.root"])]
    words += ["--batch-size", str(_FIRST.get(resolved.task, LEAST)), "--no-wandb", "--no-record", "--quiet"]
    print("\n".join(progress_lines("batch_size: auto: measured before the training")), file=sys.stderr)
    found = find_batch_size(find_locations(words, None, ()), SizeOptions(BUDGET_S, least=LEAST), FOLDER)
    if found.interrupted is not None:
        raise found.interrupted
    print("\n".join(progress_lines(verdict(found))), file=sys.stderr)
    return found.knee.size


def batch_size_of(folder: Path) -> int | None:
    """The batch size with which a training began; None if its folder does not say.

    Raises:
        UsageError: its recipe cannot be read.
    """
    from flatout.recipes.reading import FILE_NAME, read_any_recipe

    path = folder / FILE_NAME
    return read_any_recipe(str(path)).training.batch_size if path.is_file() else None
