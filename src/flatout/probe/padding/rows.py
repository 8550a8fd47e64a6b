"""Padded rows of one batch: positions at the ends of rows that hold no data.

Zeros at the end of a row may be data. So padding is only what a mask or lengths in the batch agree with, or, in rows
of integer tokens, one value that fills the ends of rows and is found nowhere else in them.
"""

from typing import Any, NamedTuple

import torch

LEAST_LENGTH = 8  # shorter rows are lists of features
MASK, LENGTHS, TOKENS = STRENGTH = "mask", "lengths", "tokens"  # the evidence, the strongest first
STRIDES = range(2, 9)  # of layers that make one position of several, or of several layers together
INTEGERS = (torch.int16, torch.int32, torch.int64)


class Padded(NamedTuple):
    """Padded rows.

    Attributes:
        evidence: ``mask``, ``lengths`` or ``tokens``.
        value: of the padding, if tokens are the evidence.
        length: of all rows, padding included.
        lengths: of each row without padding.
        transposed: the shape is (length, rows, ...), not (rows, length, ...).
        elements: of all tensors of the batch with this shape, or of pairs of positions.
        at_start: the padding comes before the data.
    """

    evidence: str
    value: "int | None"
    length: int
    lengths: "list[int]"
    transposed: bool
    elements: int
    at_start: bool

    @property
    def sides(self):
        """None: it is no canvas."""
        return None

    def ended(self):
        """The same rows, ended with the longest of them."""
        return self._replace(length=max(self.lengths))

    def whole(self, shape):
        """Rows and length of a batch of this shape that has no padding."""
        return shape[1::-1] if self.transposed else shape[:2]

    def computed(self, shapes):
        """Whether the padded rows are among results of these shapes; packed rows, or a trimmed batch, are not."""
        rows, length = len(self.lengths), self.length
        whole = any(
            shape[:2] in ((rows, length), (length, rows))
            or shape[:1] == (rows * length,)
            or (shape[:1] == (rows,) and length in shape[2:])  # channels, or heads, come first
            for shape in shapes
        )
        return whole or self._strided(shapes)

    def _strided(self, shapes):
        """Whether a model that makes one position of each few computes the padded rows."""
        longest = max(self.lengths)
        counts = _positions(self.length)
        if longest < self.length:
            # The model may cut batches at their longest rows first.
            if self._has(longest, shapes):
                return False
            counts -= _positions(longest)
        return any(self._has(count, shapes) for count in counts if count >= LEAST_LENGTH)

    def _has(self, count, shapes):
        """Whether there are results with so many positions for each row; the last sizes are taken for channels."""
        rows = len(self.lengths)
        return any(
            shape[0] == rows * count or shape[:2] == (count, rows) or (shape[0] == rows and count in shape[1:-1])
            for shape in shapes
            if len(shape) >= 2
        )


def _positions(length):
    """Numbers of positions that layers with a stride may make of a row of this length."""
    return {length // stride for stride in STRIDES} | {-(-length // stride) for stride in STRIDES}


def padded_rows_of(sequences, vectors):
    """Rows of each tensor that are padded, by the tensor's name.

    Args:
        sequences: pairs of a name and a tensor of at least two dimensions.
        vectors: that may be the lengths of rows.
    """
    padded: Any = {}
    shapes: Any = set()
    for name, part in sequences:
        for transposed in (False, True):
            rows = part.transpose(0, 1) if transposed else part
            shape = tuple(rows.shape[:2])
            if shape[1] < LEAST_LENGTH or shape in shapes:
                continue
            alike = [one for one in (_as_rows(other, shape) for _, other in sequences) if one is not None]
            (lengths, at_start), evidence, value = _masked(alike), MASK, None
            if lengths is None:
                lengths, evidence = _measured(rows, vectors), LENGTHS
            if lengths is None:
                lengths, value, at_start = _tokens(rows)
                evidence = TOKENS
            if lengths is not None:
                shapes.update((shape, shape[::-1]))
                pairs = [one for _, one in sequences if of_pairs(one, *shape)]
                elements = sum(one.numel() for one in alike) + sum(one.numel() for one in pairs)
                padded[name] = Padded(evidence, value, shape[1], lengths.tolist(), transposed, elements, at_start)
    return padded


def of_pairs(part, rows, length):
    """True for a tensor by pairs of positions that begins with neither, as the adjacency of a graph by kind of edge."""
    shape = tuple(part.shape)
    return len(shape) > 3 and shape[0] == rows and shape[1] != length and shape[2:].count(length) >= 2


def _as_rows(part, shape):
    """A tensor whose first dimensions have this shape, in either order; None of another shape."""
    if tuple(part.shape[:2]) == shape:
        return part
    return part.transpose(0, 1) if tuple(part.shape[1::-1]) == shape else None


def _masked(alike):
    """Lengths by a mask among tensors of one shape, and whether it begins rows, where another tensor is constant."""
    found: Any = None, False
    for mask in alike:
        if mask.dim() != 2 or not bool(((mask == 0) | (mask == 1)).all()):
            continue
        for kept in (mask == 1, mask == 0):
            lengths = kept.sum(1)
            place = torch.arange(kept.shape[1])
            ends = place < lengths[:, None]
            starts = place >= kept.shape[1] - lengths[:, None]
            if int(lengths.min()) < 1 or not any(bool((kept == side).all()) for side in (ends, starts)):
                continue
            if bool((lengths < kept.shape[1]).any()) and any(fills(one, kept) for one in alike if one is not mask):
                return lengths, not bool((kept == ends).all())
    return found


def _measured(rows, vectors):
    """Lengths by a vector of the batch, or a list: rows are constant beyond them, and not before."""
    place = torch.arange(rows.shape[1])
    for lengths in vectors:
        if len(lengths) != len(rows) or int(lengths.min()) < 1 or int(lengths.max()) > rows.shape[1]:
            continue
        kept = place < lengths[:, None]
        if not bool(kept.all()) and fills(rows, kept) and _ends_there(rows, kept, lengths):
            return lengths
    return None


def fills(rows, kept):
    """Whether one value, or one vector, is at all places that are not kept, and at less than half of the others."""
    padding = rows[~kept]
    if not bool((padding == padding[0]).all()):
        return False
    same = rows[kept] == padding[0]
    while same.dim() > 1:
        same = same.all(-1)
    return bool(same.float().mean() < 0.5)


def _ends_there(rows, kept, lengths):
    """Whether the last place kept differs from the padding, in most of the rows."""
    last = rows[torch.arange(len(rows)), lengths - 1] != rows[~kept][0]
    while last.dim() > 1:
        last = last.any(-1)
    return bool(last.float().mean() > 0.5)


def _tokens(rows):
    """Lengths of rows of integers that end, or begin, in a value found nowhere else in them; the value; which side."""
    found: Any = None, None, False
    if rows.dim() != 2 or rows.dtype not in INTEGERS:
        return found
    for at_start, sided in enumerate((rows, rows.flip(1))):
        value = sided[:, -1].mode().values
        data = sided != value
        lengths = (data * torch.arange(1, rows.shape[1] + 1)).amax(1)
        if int(lengths.min()) < 1 or not bool((lengths == data.sum(1)).all()):
            continue
        kept = sided[data]
        if not bool(((kept != kept.min()) & (kept != kept.max())).any()):  # a mask, or the halves of a pair
            continue
        if found[0] is None or int(lengths.sum()) < int(found[0].sum()):
            found = lengths, int(value), bool(at_start)
    return found
