"""Make one batch, or a part of one: read, decode, crop, resize into uint8 slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import thread_time_ns

import torch

from flatout.errors import FlatoutError
from flatout.loader.contract import BadImage, Batch, Crop, Source
from flatout.loader.crops import CentreCrop, RandomCrop, generator
from flatout.loader.decoders import make_decoder


class UnreadableImage(FlatoutError):
    """An image of the data set cannot be decoded, and the policy is to stop."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """How images become pixels."""

    size: int
    training: bool
    seed: int = 0
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    centre: float = 0.875
    flip: float = 0.5
    decoder: str = "torchvision"
    scaled_decode: bool = False
    skip_bad: bool = False


@dataclass
class Spent:
    """CPU time of this part of the work, ns, and images made."""

    read_ns: int = 0
    decode_ns: int = 0
    images: int = 0


@dataclass(frozen=True)
class Bad:
    """An image that could not be decoded."""

    where: str
    reason: str


class Maker:
    """Fills slots with the images of a source. Safe to use from several threads, and to send to a process."""

    def __init__(self, source: Source, indices: Sequence[int], pixels: Pixels) -> None:
        """Make images of ``indices`` of ``source``."""
        self.source, self.indices, self.pixels = source, indices, pixels
        self._decoder = make_decoder(pixels.decoder, pixels.scaled_decode)
        self.device = self._decoder.device  # where the pixels of a batch lie

    def empty(self, count: int) -> Batch:
        """A batch to be filled: images uint8 (n, 3, size, size) over (n, size, size, 3) memory."""
        size = self.pixels.size
        # Other threads write into it, also when the consumer is in inference mode.
        with torch.inference_mode(False):
            pixels = torch.empty((count, size, size, 3), dtype=torch.uint8, device=self.device)
            return Batch(
                images=pixels.permute(0, 3, 1, 2),
                labels=torch.empty(count, dtype=torch.int64),
                indices=torch.empty(count, dtype=torch.int64),
                flips=torch.zeros(count, dtype=torch.bool),
            )

    def fill(self, batch: Batch, slots: Sequence[int], places: Sequence[int], epoch: int) -> tuple[Spent, list[Bad]]:
        """Make the images of ``places`` in ``slots`` of a batch.

        With ``skip_bad`` an image that cannot be decoded is replaced by the next one of the data set that can.

        Raises:
            UnreadableImage: an image cannot be decoded and bad ones are not skipped; names the file.
        """
        spent, bad = Spent(), []
        pixels = batch.images.permute(0, 2, 3, 1)
        for slot, place in zip(slots, places, strict=True):
            for step in range(len(self.indices)):
                index = self.indices[(place + step) % len(self.indices)]
                crop, flip = self.drawn(epoch, index)
                begin = thread_time_ns()
                data = self.source.read(index)
                middle = thread_time_ns()
                try:
                    self._decoder.decode_into(data, crop, pixels[slot])
                except BadImage as error:
                    if not self.pixels.skip_bad:
                        where = self.source.locate(index)
                        raise UnreadableImage(
                            f"{where}: {error}: repair or remove it, or set data.bad_files: skip"
                        ) from None
                    bad.append(Bad(self.source.locate(index), str(error)))
                    continue
                spent.read_ns += middle - begin
                spent.decode_ns += thread_time_ns() - middle
                spent.images += 1
                batch.labels[slot] = self.source.samples[index].label
                batch.indices[slot] = index
                batch.flips[slot] = flip
                break
            else:
                raise UnreadableImage("no image of the data set can be decoded")
        return spent, bad

    def drawn(self, epoch: int, index: int) -> tuple[Crop, bool]:
        """The crop and the flip of an image in an epoch."""
        recipe = self.pixels
        if not recipe.training:
            return CentreCrop(recipe.centre), False
        draw = generator(recipe.seed, epoch, index)
        flip = draw.random() < recipe.flip
        return RandomCrop(draw, recipe.scale, recipe.ratio), flip
