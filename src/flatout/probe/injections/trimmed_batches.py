"""Batches end with their longest row: positions that hold padding in all rows are cut off after collating.

Where the model masks padding, the result stays the same but for rounding, and for what is drawn at random by position,
as dropout is. So this is not the same training.
"""

import functools

from torch import is_grad_enabled
from torch.utils.data.dataloader import DataLoader

from .. import injections
from ..padding.trimming import trimmed

_WITHOUT = 16  # batches, after which it is said that there is nothing to trim
_MARK = "_flatout_trimmed"


def install(injected, watch):
    """Patch the start of a pass. Passes without gradients are validation, and stay as they are."""
    evidence, original = injected.get("trim_padding"), DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self):
        if is_grad_enabled() and not self.__dict__.get(_MARK):
            self.__dict__[_MARK] = True
            self.__dict__["collate_fn"] = _Trimming(self.collate_fn, evidence)
        return original(self)

    DataLoader.__iter__ = __iter__


class _Trimming:
    """A ``collate_fn`` that trims what the user's returns; in workers too."""

    def __init__(self, collate, evidence):
        self._collate, self._evidence = collate, evidence
        self._seen = self._trimmed = 0

    def __call__(self, samples):
        batch = self._collate(samples)
        self._seen += 1
        try:
            made = trimmed(batch, self._evidence)
        except Exception as error:  # a container of the user's may do anything
            injections.INJECTED.refuse("trim_padding", "%s: %s" % (type(error).__name__, error))
            return batch
        if made is not None:
            self._trimmed += 1
            injections.INJECTED.done("trim_padding")
            return made
        if self._seen == _WITHOUT and not self._trimmed:
            injections.INJECTED.refuse("trim_padding", "no batch holds padding that %s shows" % self._evidence)
        return batch
