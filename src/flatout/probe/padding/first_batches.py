"""Padding in the first batches after the window, and whether the model computes it."""

from typing import Any

from .batch import MOST_ROWS, BatchPadding, padding_of
from .rows import MASK, STRENGTH, TOKENS

BATCHES = 16  # that are looked at
LEAST_ROWS, LEAST_RUNS = 8, 3  # fewer rows, or runs of fewer lengths, may end in one value by chance


class PaddingSeen:
    """What the batches of a few steps show."""

    def __init__(self):
        self._batches: list[BatchPadding] = []
        self._computed: dict[str, bool] = {}  # place of a tensor -> whether the model computes its padding
        self._ended: dict[str, bool] = {}  # the same of rows that were packed, up to the longest
        self._latest: Any = None  # the same of a batch of which no backward pass is known yet

    def look(self, batch, on_device):
        """Look at a batch as it arrives; it is only read.

        Args:
            batch: as the loader returns it.
            on_device: whether tensors of a device may be read, which waits for it.
        """
        self._latest = None
        if len(self._batches) < BATCHES:
            try:
                self._latest = padding_of(batch, on_device)
            except Exception:  # a container of the user's may do anything
                self._latest = None

    def keep(self, shapes, packed=False):
        """The latest batch was trained on.

        Args:
            shapes: of the results in the graph of its loss; None: they are not known.
            packed: rows were packed on the way, and unpacked no longer than the longest of them.
        """
        if self._latest is not None:
            self._batches.append(self._latest)
            for name, one in self._latest.padded.items() if shapes else ():
                self._computed[name] = self._computed.get(name, True) and one.computed(shapes)
                self._ended[name] = self._ended.get(name, True) and packed and one.ended().computed(shapes)
            self._latest = None

    def described(self):
        """What the record says: the tensor with most padding, its evidence, and length and rows of each batch."""
        described: Any = {"looked_at": len(self._batches)}
        most = 0
        for name in dict.fromkeys(name for batch in self._batches for name in batch.padded):
            batches = [batch for batch in self._batches if name in batch.shapes]
            found = [batch.padded.get(name) for batch in batches]
            evidence = min((one.evidence for one in found if one is not None), key=STRENGTH.index)
            # The last token of a batch without padding may be one that is nowhere else.
            found = [one if one is not None and one.evidence == evidence else None for one in found]
            padded = [one for one in found if one is not None]
            positions = sum(one.length * len(one.lengths) - sum(one.lengths) for one in padded)
            if positions > most and _certain(evidence, padded, len(batches)):
                most = positions
                whole, ended = self._computed.get(name), self._ended.get(name, False) and not padded[0].sides
                elements = sum(batch.elements for batch, one in zip(batches, found) if one is not None)
                described.update(
                    tensor=name,
                    sides=padded[0].sides,
                    evidence=evidence,
                    value=padded[0].value,
                    computed=whole or (ended if whole is not None else None),
                    packed=ended and not whole,
                    part=sum(one.elements for one in padded) / elements,
                    batches=[_row(one, batch.shapes[name], padded[0]) for batch, one in zip(batches, found)],
                )
        return described


def _row(one, shape, like):
    """Positions of a batch's rows, and of each without padding; a batch without evidence has none."""
    count, length = like.whole(shape)
    return [length, *(one.lengths if one is not None else [length] * count)[:MOST_ROWS]]


def _certain(evidence, padded, batches):
    """Whether it is padding: a mask says so, or runs of so many lengths are no chance."""
    runs = [one.length - length for one in padded for length in one.lengths]
    many = len(runs) >= LEAST_ROWS and len(set(runs)) >= LEAST_RUNS
    if evidence == TOKENS:
        return many and len(padded) == batches and len({one.value for one in padded}) == 1
    return evidence == MASK or (many and 2 * len(padded) >= batches)
