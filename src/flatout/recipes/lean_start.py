"""The start of a command that trains: less to import, and no search for garbage meanwhile.

Lightning imports all of torchmetrics, and that imports matplotlib, scipy, transformers and others where they are
installed: for plots, and for metrics of text, sound and boxes.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

# fmt: off
UNUSED = frozenset({
    "bert_score", "faster_coco_eval", "librosa", "lpips", "matplotlib", "nltk", "onnxruntime", "pesq", "piq",
    "pycocotools", "pystoi", "rouge_score", "scienceplots", "scipy", "torch_fidelity", "torchaudio", "transformers",
})
# fmt: on


def import_lightning() -> None:
    """Import PyTorch Lightning; later imports by others of what was left out are not affected.

    Plots of torchmetrics' metrics and its metrics of text are not available in this process afterwards, so this is for
    flatout's own commands. Does nothing where torchmetrics is imported already.
    """
    if "torchmetrics" in sys.modules:
        return
    with _unavailable():
        import pytorch_lightning  # noqa: F401


@contextmanager
def _unavailable() -> Iterator[None]:
    """What torchmetrics asks, before it imports a package, is answered with no."""
    from lightning_utilities.core import imports

    installed: Any = imports.package_available
    fulfilled: Any = imports.RequirementCache.__bool__

    def package_available(name: str) -> bool:
        return name not in UNUSED and bool(installed(name))

    def is_met(self: Any) -> bool:
        wanted = str(self.requirement or self.module or "").split("=")[0].rstrip("<>~! ")
        return wanted not in UNUSED and bool(fulfilled(self))

    with (
        mock.patch.object(imports, "package_available", package_available),
        mock.patch.object(imports.RequirementCache, "__bool__", is_met),
    ):
        yield


@contextmanager
def no_collections() -> Iterator[None]:
    """No search for garbage meanwhile, and later not among what was made meanwhile: modules and lists of files."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            atexit.register(gc.unfreeze)  # else extension modules report their functions as leaked at the exit
            gc.enable()
