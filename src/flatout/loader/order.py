"""Order of the images: a seeded permutation per epoch, dealt to ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of one loader; a function of its fields and the epoch."""

    count: int  # images
    batch_size: int  # of one rank
    shuffle: bool
    drop_last: bool  # leave out an incomplete last batch
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    splits: int = 1  # views of each image in a batch, one after the other: a batch has this many times batch_size
    repeats: int = 1  # repeats of each image in a row, of fewer images (Hoffer 2019), if the order is shuffled

    def __post_init__(self) -> None:
        """Check the rank."""
        assert 0 <= self.rank < self.world_size

    @property
    def batches(self) -> int:
        """Batches an epoch of this rank."""
        own = self._own_count()
        return own // self.batch_size if self.drop_last else -(-own // self.batch_size)

    def _own_count(self) -> int:
        # Training: all ranks make the same number of steps; the remainder is left out of this epoch.
        # Scoring: every image once, the first ranks may have one more.
        if self.drop_last:
            return self.count // self.world_size
        return (self.count - self.rank + self.world_size - 1) // self.world_size

    def places(self, epoch: int) -> list[int]:
        """This rank's places in 0..count-1, in order; with repeats, ``count`` is added for each earlier occurrence."""
        if not self.shuffle:
            whole = torch.arange(self.count)
        else:
            draw = torch.Generator()
            draw.manual_seed((self.seed & 0xFFFFFFFF) << 20 | epoch)
            whole = torch.randperm(self.count, generator=draw)
            if self.repeats > 1:  # a repeated place is offset by ``count`` for each earlier occurrence
                times = torch.arange(self.repeats) * self.count
                whole = (whole[:, None] + times).flatten()[: self.count]
        own: list[int] = whole[self.rank :: self.world_size][: self._own_count()].tolist()
        return own

    def plan(self, epoch: int) -> list[Sequence[int]]:
        """The batches of this rank, each a list of places; with splits, ``count`` is added for each earlier view."""
        own = self.places(epoch)
        batches = [own[n * self.batch_size : (n + 1) * self.batch_size] for n in range(self.batches)]
        if self.splits == 1:
            return list(batches)
        return [[place + view * self.count for view in range(self.splits) for place in one] for one in batches]
