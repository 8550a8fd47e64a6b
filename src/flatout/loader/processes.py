"""The same batches built by DataLoader workers, for work that holds the interpreter lock."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from flatout.loader.batch_builder import Bad, BatchBuilder, CpuTime
from flatout.loader.interfaces import Batch


class _Batches(Dataset[Any]):  # type: ignore[misc]
    """A data set whose items are whole batches; each key identifies one."""

    def __init__(self, builder: BatchBuilder) -> None:
        self._builder = builder

    def __getitem__(self, key: tuple[int, Sequence[int]]) -> tuple[Tensor, Tensor, Tensor, Tensor, CpuTime, list[Bad]]:
        epoch, places = key
        batch = self._builder.empty(len(places))
        spent, bad = self._builder.fill(batch, range(len(places)), places, epoch)
        # Pixels are transferred in their memory order.
        return batch.images.permute(0, 2, 3, 1), batch.labels, batch.indices, batch.flips, spent, bad


class _Plan:
    """The sampler: the keys of one epoch's batches."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, Sequence[int]]] = []

    def __iter__(self) -> Iterator[tuple[int, Sequence[int]]]:
        return iter(self.keys)

    # untested: part of the interface of a sampler
    def __len__(self) -> int:
        return len(self.keys)


class ProcessPool:
    """Makes the batches of a plan."""

    def __init__(self, builder: BatchBuilder, workers: int, in_flight: int) -> None:
        """Prepare ``workers`` processes; they start with the first epoch and stay."""
        self._plan = _Plan()
        with warnings.catch_warnings():
            # The number was requested or measured: more than cores if images wait for their bytes.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            self._loader: Any = DataLoader(
                _Batches(builder),
                batch_size=None,
                sampler=self._plan,
                num_workers=workers,
                prefetch_factor=max(1, in_flight // workers),
                persistent_workers=True,
                generator=torch.Generator(),  # a separate one: each epoch draws a seed that nothing here uses
            )

    def batches(
        self, plan: Sequence[Sequence[int]], epoch: int
    ) -> Generator[tuple[Batch, bool, CpuTime, list[Bad]], None, None]:
        """Each batch with False (a queue's readiness is unknown), its CPU time, and the images left out."""
        self._plan.keys = [(epoch, list(places)) for places in plan]
        for pixels, labels, indices, flips, spent, bad in self._loader:
            yield Batch(pixels.permute(0, 3, 1, 2), labels, indices, flips), False, spent, bad

    def close(self) -> None:
        """End the processes."""
        iterator = getattr(self._loader, "_iterator", None)
        if iterator is not None:
            iterator._shutdown_workers()
            self._loader._iterator = None
