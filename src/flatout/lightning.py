"""A PyTorch Lightning callback that records a fit, for people who prefer code to a command."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.watching import watch

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError:
        raise UsageError("flatout.lightning needs PyTorch Lightning: pip install pytorch-lightning") from None


class FlatoutCallback(Callback):  # type: ignore[misc]
    """Records from the start of ``fit`` to its end, as :func:`flatout.watch` does.

    Args:
        runs_dir: Folder in which the run folder is made.

    Attributes:
        run: The run folder; None before the fit, and below ``flatout profile``.
    """

    def __init__(self, runs_dir: Path | str = Path(".flatout/runs")) -> None:
        super().__init__()
        self.run: Path | None = None
        self._runs_dir = runs_dir
        self._open = ExitStack()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin with the fit, before its loaders are iterated."""
        if stage == "fit":
            self.run = self._open.enter_context(watch(self._runs_dir))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End with the fit."""
        self._open.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End with a fit that failed or was interrupted, which the record says."""
        self._open.__exit__(type(exception), exception, exception.__traceback__)
