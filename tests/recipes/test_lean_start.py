"""A command starts without packages that no training uses, and leaves the process as it should be."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from flatout.recipes.lean_start import UNUSED, no_collections

PROGRAM = """
import sys
from flatout.recipes.lean_start import UNUSED, import_lightning
import_lightning()
import pytorch_lightning, torch
from torchmetrics.classification import MulticlassAccuracy
accuracy = MulticlassAccuracy(3, average="micro")
accuracy.update(torch.eye(3), torch.tensor([0, 1, 0]))
print(sorted(UNUSED & set(sys.modules)), round(float(accuracy.compute()), 4))
import matplotlib.pyplot, scipy.stats
from lightning_utilities.core.imports import RequirementCache, package_available
print(bool(RequirementCache("scipy>=1.0")), package_available("matplotlib"))
"""


@pytest.mark.slow
def test_lightning_is_imported_without_packages_for_plots_and_texts_which_stay_usable() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] 0.6667", "True True"], done.stderr
    assert {"matplotlib", "scipy", "transformers"} <= UNUSED


def test_garbage_is_collected_again_afterwards_and_what_was_made_is_left_alone() -> None:
    try:
        with no_collections():
            assert not gc.isenabled()
            made = [[] for _ in range(10)]  # type: ignore[var-annotated]
        assert gc.isenabled() and gc.get_freeze_count() > len(made)
    finally:
        gc.unfreeze()
