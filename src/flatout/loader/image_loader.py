"""The loader of the reference pipelines: uint8 batches in a seeded order, ahead of the training, resumable."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from flatout.loader.augment import NOTHING, Augmentation
from flatout.loader.batch_builder import Bad, BatchBuilder, CpuTime, PixelSpec
from flatout.loader.choice import Choice, choose, usable_cores
from flatout.loader.interfaces import Batch, Source
from flatout.loader.order import Order
from flatout.loader.processes import ProcessPool
from flatout.loader.threads import ThreadPool


@dataclass
class Stats:
    """Counts of a loader's work so far."""

    batches: int = 0
    images: int = 0
    wait_s: float = 0.0  # the consumer waited for batches
    ready: int = 0  # batches that were ready when they were asked for
    read_s: float = 0.0  # CPU time of reading
    decode_s: float = 0.0  # CPU time of decoding, cropping and resizing


class ImageLoader:
    """Iterates the batches of an epoch.

    Every image of a batch is a function of (seed, epoch, index) alone, so batches are the same whatever the number of
    threads or processes, and after a resume.
    """

    def __init__(
        self,
        source: Source,
        indices: Sequence[int],
        *,
        size: int,
        batch_size: int,
        training: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        crop_scale: tuple[float, float] = (0.08, 1.0),
        crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
        validation_crop: float = 0.875,
        squash: bool = False,
        flip: float = 0.5,
        augmentation: Augmentation = NOTHING,
        interpolation: str = "bilinear",
        repeats: int = 1,
        splits: int = 1,
        decoder: str = "torchvision",
        scaled_decode: bool = False,
        backend: str = "auto",
        workers: int | str = "auto",
        prefetch_batches: int = 4,
        bad_files: str = "error",
        pin_memory: bool = False,
    ) -> None:
        """Prepare; threads or processes start here.

        Args:
            source: the images.
            indices: those of its samples that are used.
            size: side of the crop, pixels.
            batch_size: images a batch of this rank.
            training: shuffled, random crops and flips, no partial batch; else in order, middle crops, all images.
            seed: of order and crops.
            rank: this process's.
            world_size: processes that share the data.
            crop_scale: area of the random crop, share of the image.
            crop_ratio: aspect ratio of the random crop.
            validation_crop: share of the short side that the middle crop looks at.
            squash: the same share of either side instead.
            flip: probability of a flip, which the device carries out.
            augmentation: what else is drawn for a training image.
            interpolation: of resizing, bilinear or bicubic.
            repeats: how often an image comes in a row in training, of fewer images.
            splits: views of each image in a batch of training, in addition to ``batch_size``.
            decoder: see ``flatout.loader.decoders``.
            scaled_decode: see there.
            backend: auto, threads or processes.
            workers: how many, or auto.
            prefetch_batches: batches in flight at most.
            bad_files: error, or skip.
            pin_memory: put batches into page-locked memory.
        """
        pixels = PixelSpec(
            size=size,
            training=training,
            seed=seed,
            scale=crop_scale,
            ratio=crop_ratio,
            centre=validation_crop,
            squash=squash,
            flip=flip,
            augmentation=augmentation,
            interpolation=interpolation,
            repeats=repeats if training else 1,
            splits=splits if training else 1,
            decoder=decoder,
            scaled_decode=scaled_decode,
            skip_bad=bad_files == "skip",
        )
        self._builder = BatchBuilder(source, indices, pixels)
        self.order = Order(
            count=len(indices),
            batch_size=batch_size,
            shuffle=training,
            drop_last=training,
            seed=seed,
            rank=rank,
            world_size=world_size,
            repeats=repeats,
            splits=splits if training else 1,
        )
        kind: Any
        if decoder == "dali":
            from flatout.loader.dali import DaliPool as kind

            count = usable_cores() if workers == "auto" else int(workers)
            self.choice = Choice("threads", count, f"DALI, {count} threads")
        else:
            self.choice = choose(self._builder, self.order.places(0)[:64], backend, workers)
            kind = ThreadPool if self.choice.backend == "threads" else ProcessPool
        self._pool = kind(self._builder, self.choice.workers, prefetch_batches)
        self._pin = pin_memory
        self.epoch = 0
        self._delivered = 0  # batches of this epoch that the consumer has received
        self.stats = Stats()
        self.bad: list[Bad] = []

    def __len__(self) -> int:
        """Batches an epoch."""
        return self.order.batches

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

    def __iter__(self) -> Iterator[Batch]:
        """The batches of this epoch that were not yet delivered; after the last one the next epoch begins."""
        plan = self.order.plan(self.epoch)
        epoch = self.epoch
        coming = self._pool.batches(plan[self._delivered :], epoch)
        try:
            while True:
                begin = time.perf_counter()
                made = next(coming, None)
                self.stats.wait_s += time.perf_counter() - begin
                if made is None:
                    return
                batch, ready, spent, bad = made
                self._count(batch, ready, spent, bad)
                self._delivered += 1
                # Updated before the last batch is yielded: a consumer that knows the length requests no further one.
                if self.epoch == epoch and self._delivered == len(plan):
                    self.epoch, self._delivered = epoch + 1, 0
                yield batch.pin_memory() if self._pin and not batch.images.is_cuda else batch
        finally:
            coming.close()

    def _count(self, batch: Batch, ready: bool, spent: CpuTime, bad: list[Bad]) -> None:
        stats = self.stats
        stats.batches += 1
        stats.images += len(batch)
        stats.ready += ready
        stats.read_s += spent.read_ns / 1e9
        stats.decode_s += spent.decode_ns / 1e9
        self.bad.extend(bad)

    def close(self) -> None:
        """End the threads or processes."""
        self._pool.close()

    def __enter__(self) -> ImageLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
