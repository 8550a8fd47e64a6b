"""The same batches built by NVIDIA DALI, with its CPU operators or decoding on the GPU if there is one."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from PIL import Image

from flatout.errors import UsageError
from flatout.loader.batch_builder import Bad, BatchBuilder, CpuTime
from flatout.loader.decoders.pillow import ORIENTATION
from flatout.loader.interfaces import Batch

# Placeholder for an image that DALI does not decode; its pixels are replaced.
_STAND_IN = io.BytesIO()
Image.new("RGB", (8, 8)).save(_STAND_IN, "JPEG")


# untested: needs a GPU and DALI
class DaliPool:
    """Makes the batches of a plan.

    DALI decodes upright RGB and grey JPEGs, nearly all images; the rest, and batches that DALI refuses, are decoded by
    the builder's own decoder.
    """

    def __init__(self, builder: BatchBuilder, workers: int, in_flight: int) -> None:
        """Prepare; the pipeline is built with the first batch.

        Raises:
            UsageError: DALI is not installed.
        """
        try:
            import nvidia.dali  # noqa: F401
        except ImportError:
            raise UsageError(
                "images.decoder: dali is not installed: pip install nvidia-dali-cuda120 (or -cuda130), "
                "or set it to torchvision"
            ) from None
        self._builder, self._workers, self._in_flight = builder, workers, in_flight
        self._device = "gpu" if torch.cuda.is_available() else "cpu"
        self._readers = ThreadPoolExecutor(workers, "flatout-dali")

    def batches(
        self, plan: Sequence[Sequence[int]], epoch: int
    ) -> Generator[tuple[Batch, bool, CpuTime, list[Bad]], None, None]:
        """Each batch with False (a pipeline's readiness is unknown), its CPU time, and the images left out."""
        if not plan:
            return
        fed: list[tuple[Sequence[int], list[int]]] = []  # of batches begun: places, and slots that DALI does not fill
        pipeline = self._pipeline(max(map(len, plan)), self._feed(plan, epoch, fed))
        for done in range(len(plan)):
            try:
                (pixels,) = pipeline.run()
            except RuntimeError:
                yield from self._without(plan[done:], epoch)
                return
            places, others = fed.pop(0)
            yield self._finished(pixels, places, others, epoch)

    def _without(self, plan: Sequence[Sequence[int]], epoch: int) -> Iterator[tuple[Batch, bool, CpuTime, list[Bad]]]:
        """The rest of an epoch by the builder alone, which names or leaves out an image that nothing can decode."""
        for places in plan:
            batch = self._builder.empty(len(places))
            spent, bad = self._builder.fill(batch, range(len(places)), places, epoch)
            yield batch, False, spent, bad

    def _pipeline(self, batch_size: int, source: Iterator[Any]) -> Any:
        from nvidia.dali import fn, pipeline_def, types

        size = self._builder.pixels.size
        kind = types.INTERP_LINEAR if self._builder.pixels.interpolation == "bilinear" else types.INTERP_CUBIC
        where = "mixed" if self._device == "gpu" else "cpu"

        @pipeline_def(  # type: ignore[untyped-decorator]
            batch_size=batch_size,
            num_threads=self._workers,
            device_id=torch.cuda.current_device() if self._device == "gpu" else None,
            prefetch_queue_depth=max(1, self._in_flight // 2),
        )
        def pipe() -> Any:
            data, anchor, shape = fn.external_source(
                source=source, num_outputs=3, dtype=[types.UINT8, types.INT64, types.INT64]
            )
            image = fn.decoders.image_slice(data, anchor, shape, axis_names="HW", device=where)
            return fn.resize(image, size=[size, size], interp_type=kind, antialias=True)

        made = pipe()
        made.build()
        return made

    def _feed(
        self, plan: Sequence[Sequence[int]], epoch: int, fed: list[tuple[Sequence[int], list[int]]]
    ) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
        for places in plan:
            read = list(self._readers.map(lambda place: self._encoded(place, epoch), places))
            fed.append((places, [slot for slot, one in enumerate(read) if one is None]))
            stand_in = (np.frombuffer(_STAND_IN.getvalue(), np.uint8), np.array([0, 0]), np.array([8, 8]))
            columns = list(zip(*(stand_in if one is None else one for one in read), strict=True))
            yield list(columns[0]), list(columns[1]), list(columns[2])

    def _encoded(self, place: int, epoch: int) -> tuple[Any, Any, Any] | None:
        """Bytes and the crop's (top, left) and (height, width); None if DALI does not decode it."""
        try:
            data = self._builder.source.read(self._builder.locate(place)[0])
        except OSError:
            return None  # the batch builder reports what is wrong with it, or leaves it out
        try:
            with Image.open(io.BytesIO(data)) as image:
                if image.format != "JPEG" or image.mode not in ("RGB", "L"):
                    return None
                if image.info.get("exif") and image.getexif().get(ORIENTATION, 1) != 1:
                    return None
                width, height = image.size
        except Exception:
            return None
        crop, _ = self._builder.drawn(epoch, place)
        box = crop.box(width, height)
        corner, extent = (int(box.top), int(box.left)), (int(box.height), int(box.width))
        return np.frombuffer(data, np.uint8), np.array(corner), np.array(extent)

    def _finished(
        self, pixels: Any, places: Sequence[int], others: list[int], epoch: int
    ) -> tuple[Batch, bool, CpuTime, list[Bad]]:
        if self._device == "gpu":
            made = torch.from_dlpack(pixels.as_tensor()).clone()
        else:
            made = torch.from_numpy(np.array(pixels.as_array()))
        own = set(range(len(places))) - set(others)
        for slot in own:
            self._builder.augment(made[slot], epoch, places[slot])
        indices = [self._builder.locate(place)[0] for place in places]
        batch = Batch(
            images=made.permute(0, 3, 1, 2),
            labels=torch.tensor([self._builder.source.samples[index].label for index in indices]),
            indices=torch.tensor(indices),
            flips=torch.tensor([self._builder.drawn(epoch, place)[1] for place in places]),
        )
        spent, bad = CpuTime(images=len(places)), list[Bad]()
        if others:
            rest = self._builder.empty(len(others))
            spent, bad = self._builder.fill(rest, range(len(others)), [places[slot] for slot in others], epoch)
            spent.images = len(places)
            for name in ("images", "labels", "indices", "flips"):
                part = getattr(batch, name)
                part[others] = getattr(rest, name).to(part.device)
        return batch, False, spent, bad

    def close(self) -> None:
        """End the reading threads; a pipeline ends with its last use."""
        self._readers.shutdown(wait=True, cancel_futures=True)
