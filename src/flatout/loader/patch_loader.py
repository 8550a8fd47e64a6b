"""Batches of 3-D patches, read by threads ahead of the training, in an order that a resume continues."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flatout.loader.choice import usable_cores
from flatout.loader.threads import single_threaded_pool

MOST_WORKERS = 8  # more do not help: they read and copy
Patch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@dataclass(frozen=True)
class PatchBatch:
    """Patches as they are stored; all further processing happens on the device."""

    images: Tensor  # the stored dtype (n, z, y, x)
    labels: Tensor  # integers of the same shape
    numbers: tuple[int, ...]  # of the samples: what is drawn for them follows from these

    def __len__(self) -> int:
        return len(self.numbers)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PatchBatch:
        """The batch on another device."""
        return replace(
            self,
            images=self.images.to(device, non_blocking=non_blocking),
            labels=self.labels.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> PatchBatch:  # untested: needs a GPU
        """The batch in page-locked memory."""
        return replace(self, images=self.images.pin_memory(), labels=self.labels.pin_memory())


@dataclass
class PatchStats:
    """Counts of a loader's work so far."""

    batches: int = 0
    patches: int = 0
    wait_s: float = 0.0  # the consumer waited for batches
    ready: int = 0  # batches that were ready when they were asked for


class PatchLoader:
    """Iterates the batches of an epoch; each patch is a function of its number alone."""

    def __init__(
        self,
        read: Callable[[int], Patch],
        plan: Callable[[int], Sequence[Sequence[int]]],
        *,
        workers: int | str = "auto",
        prefetch_batches: int = 3,
        pin_memory: bool = False,
    ) -> None:
        """Start the threads.

        Args:
            read: the image and the label of a sample's number; called in several threads.
            plan: the numbers of each batch of an epoch; their count is that of the first epoch.
            workers: threads; auto: one a usable core, at most 8.
            prefetch_batches: batches in flight at most.
            pin_memory: put batches into page-locked memory.
        """
        self._read, self.plan, self._in_flight, self._pin = read, plan, prefetch_batches, pin_memory
        self.workers = min(usable_cores(), MOST_WORKERS) if workers == "auto" else int(workers)
        self._pool = single_threaded_pool(self.workers)
        self.epoch = 0
        self._delivered = 0  # batches of this epoch that the consumer has received
        self.stats = PatchStats()

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.plan(0))

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch at its first batch; the same epoch again keeps its place."""
        if epoch != self.epoch:
            self.epoch, self._delivered = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Position of the consumer; batches that were only prefetched do not count."""
        return {"epoch": self.epoch, "delivered": self._delivered}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue after the delivered batches."""
        self.epoch, self._delivered = int(state["epoch"]), int(state["delivered"])

    def __iter__(self) -> Iterator[PatchBatch]:
        """The batches of this epoch that were not yet delivered; after the last one the next epoch begins."""
        plan = self.plan(self.epoch)
        epoch = self.epoch
        waiting: deque[tuple[Sequence[int], list[Future[Patch]]]] = deque()
        coming = iter(plan[self._delivered :])
        try:
            while True:
                while len(waiting) < self._in_flight and (numbers := next(coming, None)) is not None:
                    waiting.append((numbers, [self._pool.submit(self._read, number) for number in numbers]))
                if not waiting:
                    return
                begin = time.perf_counter()
                numbers, parts = waiting[0]
                self.stats.ready += all(part.done() for part in parts)
                batch = _stacked(numbers, [part.result() for part in parts])
                self.stats.wait_s += time.perf_counter() - begin
                waiting.popleft()
                self.stats.batches += 1
                self.stats.patches += len(batch)
                self._delivered += 1
                # Updated before the last batch is yielded: a consumer that knows the length requests no further one.
                if self.epoch == epoch and self._delivered == len(plan):
                    self.epoch, self._delivered = epoch + 1, 0
                yield batch.pin_memory() if self._pin else batch
        finally:
            for _, parts in waiting:
                for part in parts:
                    part.cancel()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> PatchLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def _stacked(numbers: Sequence[int], patches: Sequence[Patch]) -> PatchBatch:
    images, labels = (np.stack([patch[part] for patch in patches]) for part in (0, 1))
    return PatchBatch(torch.from_numpy(images), torch.from_numpy(labels), tuple(numbers))


def training_plan(batches: int, batch_size: int, rank: int, world: int) -> Callable[[int], list[range]]:
    """Numbers that never come twice, counted over epochs and ranks."""

    def plan(epoch: int) -> list[range]:
        first = (epoch * batches * world + rank) * batch_size
        step = world * batch_size
        return [range(first + at * step, first + at * step + batch_size) for at in range(batches)]

    return plan


def scoring_plan(count: int, batch_size: int, rank: int, world: int) -> Callable[[int], list[range]]:
    """All numbers once, dealt to the ranks."""
    own = range(rank, count, world)
    batches = [own[at : at + batch_size] for at in range(0, len(own), batch_size)]
    return lambda epoch: batches
