"""Seeds of workers in a live trial: as many are drawn as without it."""

from typing import Any

import torch

from ..identity import ByIdentity
from . import switch

_MISSING = object()


class Seeds:
    """Draws as many seeds of workers as the training's own settings would, so that its random numbers stay the same.

    An iterator draws one when it is made; workers that stay are served by one iterator for all passes.
    """

    def __init__(self):
        self._before: Any = ByIdentity()  # DataLoader whose generator is replaced -> its own
        self._replaced = 0

    def begins(self, loader, before):
        """An iterator for a pass is asked for.

        Args:
            loader: the DataLoader.
            before: its own settings; None: this is its first pass.
        """
        draws = _makes_iterators(loader.__dict__) or getattr(loader, "_iterator", None) is None
        drew = before is None or _makes_iterators(before)
        if drew and not draws:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        elif draws and not drew:
            self._before[loader] = (loader.generator,)
            self._replaced += 1
            loader.__dict__["generator"] = own = torch.Generator()
            own.manual_seed((torch.initial_seed() + self._replaced * switch.SEED_STEP) % (1 << 63))

    def ended(self, loader):
        """It has been made, or is reset."""
        (own,) = self._before.get(loader) or (_MISSING,)
        if own is not _MISSING:
            loader.__dict__["generator"] = own
            self._before[loader] = None


def _makes_iterators(settings):
    """True if each pass has an iterator of its own."""
    return not (settings["persistent_workers"] and settings["num_workers"])
