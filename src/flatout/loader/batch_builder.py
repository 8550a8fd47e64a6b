"""Make one batch, or a part of one: read, decode, crop, resize into uint8 slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import thread_time_ns

import torch

from flatout.errors import UnreadableImage
from flatout.loader.augment import NOTHING, Augmentation
from flatout.loader.crops import CentreCrop, RandomCrop, generator
from flatout.loader.decoders import make_decoder
from flatout.loader.interfaces import BadImage, Batch, Crop, Source

AUGMENTING = 1 << 16  # added to the repeat: its generator differs from that of crop and flip


@dataclass(frozen=True, kw_only=True)
class PixelSpec:
    """Settings for decoding images to pixels."""

    size: int
    training: bool
    seed: int = 0
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    centre: float = 0.875
    squash: bool = False
    flip: float = 0.5
    augmentation: Augmentation = NOTHING
    interpolation: str = "bilinear"
    decoder: str = "torchvision"
    scaled_decode: bool = False
    skip_bad: bool = False
    repeats: int = 1
    splits: int = 1  # of these views, the first is not augmented, and all have the same crop and flip


@dataclass
class CpuTime:
    """CPU time of this part of the work, in ns, and the number of images decoded."""

    read_ns: int = 0
    decode_ns: int = 0
    images: int = 0


@dataclass(frozen=True)
class Bad:
    """An image that could not be decoded."""

    where: str
    reason: str


class BatchBuilder:
    """Fills slots with the images of a source. Safe to use from several threads, and to send to a process."""

    def __init__(self, source: Source, indices: Sequence[int], pixels: PixelSpec) -> None:
        """Decode the images at ``indices`` of ``source``."""
        self.source, self.indices, self.pixels = source, indices, pixels
        self._decoder = make_decoder(pixels.decoder, pixels.scaled_decode, pixels.interpolation)
        self.device = self._decoder.device  # memory of a batch's pixels

    def empty(self, count: int) -> Batch:
        """A batch to be filled: images uint8 (n, 3, size, size) over (n, size, size, 3) memory."""
        size = self.pixels.size
        # Other threads write into it, even if the consumer is in inference mode.
        with torch.inference_mode(False):
            pixels = torch.empty((count, size, size, 3), dtype=torch.uint8, device=self.device)
            return Batch(
                images=pixels.permute(0, 3, 1, 2),
                labels=torch.empty(count, dtype=torch.int64),
                indices=torch.empty(count, dtype=torch.int64),
                flips=torch.zeros(count, dtype=torch.bool),
            )

    def fill(self, batch: Batch, slots: Sequence[int], places: Sequence[int], epoch: int) -> tuple[CpuTime, list[Bad]]:
        """Decode the images at ``places`` into ``slots`` of a batch.

        With ``skip_bad``, an image that cannot be decoded is replaced by the next decodable one of the data set.

        Raises:
            UnreadableImage: an image cannot be decoded and bad ones are not skipped; names the file.
        """
        spent, bad = CpuTime(), []
        pixels = batch.images.permute(0, 2, 3, 1)
        for slot, place in zip(slots, places, strict=True):
            for step in range(len(self.indices)):
                index, repeat = self.locate(place + step)
                crop, flip = self._drawn(epoch, index, repeat)
                begin = thread_time_ns()
                try:
                    data = self._read(index)
                    middle = thread_time_ns()
                    self._decoder.decode_into(data, crop, pixels[slot])
                except BadImage as error:
                    where = self.source.locate(index)
                    if not self.pixels.skip_bad:
                        raise UnreadableImage(where, str(error)) from None
                    bad.append(Bad(where, str(error)))
                    continue
                self.augment(pixels[slot], epoch, place + step)
                spent.read_ns += middle - begin
                spent.decode_ns += thread_time_ns() - middle
                spent.images += 1
                batch.labels[slot] = self.source.samples[index].label
                batch.indices[slot] = index
                batch.flips[slot] = flip
                break
            else:
                raise UnreadableImage("the data set", "none of its images can be decoded")
        return spent, bad

    def locate(self, place: int) -> tuple[int, int]:
        """Index into the source of the image at a place, and the number of its earlier occurrences in the epoch."""
        repeat, own = divmod(place, len(self.indices))
        return self.indices[own], repeat if self.pixels.repeats > 1 or self.pixels.splits > 1 else 0

    def drawn(self, epoch: int, place: int) -> tuple[Crop, bool]:
        """The crop and the flip of a place in an epoch."""
        return self._drawn(epoch, *self.locate(place))

    def augment(self, pixels: torch.Tensor, epoch: int, place: int) -> None:
        """Change the colours and shapes of a training image, uint8 (height, width, 3), in place."""
        if self.pixels.training:
            index, repeat = self.locate(place)
            if self.pixels.splits > 1 and not repeat:
                return
            draw = generator(self.pixels.seed, epoch, index, repeat + AUGMENTING)
            self.pixels.augmentation.apply(pixels, draw)

    def _drawn(self, epoch: int, index: int, repeat: int) -> tuple[Crop, bool]:
        recipe = self.pixels
        if not recipe.training:
            return CentreCrop(recipe.centre, recipe.squash), False
        draw = generator(recipe.seed, epoch, index, 0 if recipe.splits > 1 else repeat)
        flip = draw.random() < recipe.flip
        return RandomCrop(draw, recipe.scale, recipe.ratio), flip

    def _read(self, index: int) -> bytes:
        """The encoded bytes.

        Raises:
            BadImage: the file is missing (a dangling link, say) or may not be read.
            UnreadableImage: the storage failed.
        """
        try:
            return self.source.read(index)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
                raise BadImage(reason) from None
            raise UnreadableImage(self.source.locate(index), f"cannot be read: {reason}") from None
