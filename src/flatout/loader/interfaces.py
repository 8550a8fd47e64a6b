"""Interfaces between the parts of the data path: source, crop, decoder, batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Sample(NamedTuple):
    """One image of a source."""

    key: str  # its path below the source's root, or its id, as named in errors and predictions
    label: int  # class index, -1 if there is none


class Source(Protocol):
    """Encoded images that can be read in any order, from several threads at once."""

    only_threads: str | None  # why processes cannot read it, or None

    @property
    def samples(self) -> Sequence[Sample]:
        """All images, in an order that depends on their names only."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into it."""

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""

    def locate(self, index: int) -> str:
        """Location of an image, in words that lead a person to the file."""


class Box(NamedTuple):
    """A crop in pixels of the decoded and upright image; may have fractions in validation."""

    left: float
    top: float
    width: float
    height: float


class Crop(Protocol):
    """Chooses the box of one image."""

    def box(self, width: int, height: int) -> Box:
        """The crop of an upright image of this size."""


class Decoder(Protocol):
    """Encoded bytes to pixels."""

    device: str  # memory of the slots: "cpu" or "cuda"

    def decode_into(self, data: bytes, crop: Crop, slot: Tensor) -> None:
        """Decode, crop and resize (antialiased) into ``slot``, uint8 (height, width, 3) RGB.

        Raises:
            BadImage: this decoder cannot read the bytes; the message is the reason.
        """


class BadImage(ValueError):
    """An image that cannot be decoded, with the reason."""


@dataclass(frozen=True)
class Batch:
    """One batch of decoded pixels; all further processing happens on the device."""

    images: Tensor  # uint8 (n, 3, height, width), channels_last in memory
    labels: Tensor  # int64 (n,)
    indices: Tensor  # int64 (n,), indices into the source's samples
    flips: Tensor  # bool (n,): flip horizontally on the device

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The batch on another device."""
        moved = {
            name: getattr(self, name).to(device, non_blocking=non_blocking)
            for name in ("images", "labels", "indices", "flips")
        }
        return replace(self, **moved)

    def pin_memory(self) -> Batch:
        """The batch in page-locked memory."""
        return replace(
            self, **{name: getattr(self, name).pin_memory() for name in ("images", "labels", "indices", "flips")}
        )
