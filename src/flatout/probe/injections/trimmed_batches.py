"""Batches end with their longest row: positions that hold padding in all rows are cut off after collating.

Where the model masks padding, the result stays the same but for rounding, and for what is drawn at random by position,
as dropout is. So this is not the same training.
"""

import copy
import functools

import torch
from torch import is_grad_enabled
from torch.utils.data.dataloader import DataLoader

from .. import injections
from ..batch_padding import named_tensors
from ..batches import is_mapping
from ..padded_rows import LENGTHS, MASK, padded_rows_of

_MULTIPLE = 8  # lengths are rounded up: tensor cores want multiples, and compilers few shapes
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


def trimmed(batch, evidence):
    """A batch without the positions that are padding in each of its rows.

    Args:
        batch: tensors in lists, tuples, mappings or dataclasses, as ``collate_fn`` returned it.
        evidence: of the padding: ``mask`` or ``lengths`` in the batch, or ``PLACE=VALUE``, the value that fills rows of
            the tensor at this place, as in ``input_ids=0``.

    Returns:
        A new batch of the same types; None if there is nothing to trim.
    """
    parts = [(name, part) for name, part in named_tensors(batch) if part.layout == torch.strided and part.numel()]
    found = _by_value(parts, evidence) if "=" in evidence else _by_evidence(parts, evidence)
    kept = [one for one in found if -(-one[2] // _MULTIPLE) * _MULTIPLE < one[1]]
    if not kept:
        return None
    rows, length, longest, at_start = max(kept, key=lambda one: one[1] - one[2])
    longest = -(-longest // _MULTIPLE) * _MULTIPLE
    span = slice(length - longest, length) if at_start else slice(0, longest)
    return _rebuilt(batch, functools.partial(_cut, rows=rows, length=length, span=span))


def _by_evidence(parts, evidence):
    """Rows, length, longest row and side of padded tensors."""
    sequences = [pair for pair in parts if pair[1].dim() > 1]
    vectors = [part for _, part in parts if part.dim() == 1 and not part.is_floating_point()]
    for padded in padded_rows_of(sequences, vectors).values():
        if padded.evidence == MASK or padded.evidence == evidence == LENGTHS:
            yield len(padded.lengths), padded.length, max(padded.lengths), padded.at_start


def _by_value(parts, evidence):
    place, _, value = evidence.rpartition("=")
    rows = dict(parts).get(place)
    if rows is None or rows.dim() != 2:
        return
    used = (rows != int(value)).any(0).nonzero()
    if len(used):
        first, last, length = int(used[0]), int(used[-1]), rows.shape[1]
        at_start = first > length - 1 - last
        yield len(rows), length, length - first if at_start else last + 1, at_start


def _cut(part, rows, length, span):
    for place in _places(part, rows, length):
        part = part[(slice(None),) * place + (span,)]
    return part.contiguous()


def _places(part, rows, length):
    """The dimensions of a tensor that count positions: one, or two of a mask by pairs of positions."""
    shape = tuple(part.shape)
    if len(shape) < 2 or shape[:2] == (length, rows) != (rows, length):
        return [0] * (len(shape) > 1)
    if shape[:2] == (rows, length):
        return [1, 2] if shape[1:] == (length, length) and not part.is_floating_point() else [1]
    if shape[:2] == (rows, 1):
        return [place for place in range(2, len(shape)) if shape[place] == length]
    return []


def _rebuilt(part, cut):
    if isinstance(part, torch.Tensor):
        return cut(part)
    if is_mapping(part):
        made = copy.copy(part)
        for key in list(part.keys()):
            made[key] = _rebuilt(part[key], cut)
        return made
    if isinstance(part, tuple):
        made = [_rebuilt(one, cut) for one in part]
        return type(part)(*made) if hasattr(part, "_fields") else type(part)(made)
    if isinstance(part, list):
        return [_rebuilt(one, cut) for one in part]
    if hasattr(type(part), "__dataclass_fields__"):
        made = copy.copy(part)
        for name, one in vars(part).items():
            made.__dict__[name] = _rebuilt(one, cut)
        return made
    return part
