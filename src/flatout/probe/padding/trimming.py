"""A batch without the positions that hold padding in each of its rows."""

import functools

import torch

from ..batches import rebuilt
from .batch import named_tensors
from .rows import LENGTHS, MASK, TOKENS, of_pairs, padded_rows_of

_MULTIPLE = 8  # lengths are rounded up: tensor cores want multiples, and compilers few shapes


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
    rest = slice(0, length - longest) if at_start else slice(longest, length)
    return rebuilt(batch, functools.partial(_cut, rows=rows, length=length, span=span, rest=rest))


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


def _cut(part, rows, length, span, rest):
    for place in _places(part, rows, length):
        if _is_padding(part.narrow(place, rest.start, rest.stop - rest.start), rows):  # else of this width by chance
            part = part[(slice(None),) * place + (span,)]
    return part.contiguous()


def _is_padding(part, rows):
    """True if it holds one value, or the same in each row, as positions do."""
    if bool((part == part.reshape(-1)[0]).all()):
        return True
    part = part if part.shape[0] == rows else part.transpose(0, 1)
    return bool((part == part[:1]).all())


def _places(part, rows, length):
    """The dimensions of a tensor that count positions: one, or those of a mask or graph by pairs of positions."""
    shape = tuple(part.shape)
    if shape[:2] == (rows, length) or shape[:2] == (rows, 1) or of_pairs(part, rows, length):
        return [place for place in range(1, len(shape)) if shape[place] == length]
    return [0] if shape[:2] == (length, rows) else []


def evidence_of(padding):
    """The evidence of what ``PaddingSeen`` found, as ``trimmed`` takes it; None: it is none of rows."""
    if padding.get("sides") or padding.get("computed") is False or not padding.get("evidence"):
        return None
    return "%s=%s" % (padding["tensor"], padding["value"]) if padding["evidence"] == TOKENS else padding["evidence"]
