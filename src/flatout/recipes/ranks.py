"""Rank of this process in a distributed training, from torchrun's environment variables."""

from __future__ import annotations

import os
from typing import NamedTuple


class Ranks(NamedTuple):
    """Rank of this process among those of a distributed training."""

    rank: int
    world_size: int
    local_world_size: int  # on this host

    @property
    def is_first(self) -> bool:
        """True if this process writes the files and prints."""
        return self.rank == 0


def this_process() -> Ranks:
    """Read RANK, WORLD_SIZE and LOCAL_WORLD_SIZE; one process alone where they are not set."""
    return Ranks(
        int(os.environ.get("RANK", "0")),
        int(os.environ.get("WORLD_SIZE", "1")),
        int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
