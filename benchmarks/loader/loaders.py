"""Each loader, as its documentation shows it, giving the same crops: 224 x 224, antialiased, batches of 64.

Every loader is given the best that it can use: torchvision's JPEG decoder where it leaves decoding to the user.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

SIZE = 224
BATCH = 64
EPOCH_REPEATS = 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Work:
    """What is to be loaded.

    Attributes:
        root: Folder of the data set.
        files: Paths of its images.
        order: Places in ``files``, in the order in which they are wanted.
        boxes: One crop a file: left, top, width, height.
        workers: Threads or processes.
    """

    root: Path
    files: list[str]
    order: list[int]
    boxes: list[tuple[int, int, int, int]]
    workers: int


@dataclass(frozen=True)
class Loader:
    """One row of the comparison.

    Attributes:
        name: As in the tables.
        package: The distribution that has to be installed; None: it is there.
        batches: Gives batches: arrays (n, 3, h, w) or (n, h, w, 3), uint8, or float32 normalised.
    """

    name: str
    package: str | None
    batches: Callable[[Work], Iterator[Any]]


def crop_decoded(data: bytes, box: tuple[int, int, int, int]) -> torch.Tensor:
    """The decoder of torchvision and the antialiased resize of torch: uint8 (3, 224, 224)."""
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional as F

    left, top, width, height = box
    image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
    return F.resized_crop(image, top, left, height, width, [SIZE, SIZE], antialias=True)


class Files(torch.utils.data.Dataset):
    """A map-style data set of files."""

    def __init__(self, work: Work, how: str) -> None:
        """``how``: pillow-float, pillow or torchvision."""
        self.work, self.how = work, how

    def __len__(self) -> int:
        return len(self.work.order)

    def __getitem__(self, place: int) -> torch.Tensor:
        from PIL import Image
        from torchvision.transforms.v2 import functional as F

        index = self.work.order[place]
        if self.how == "torchvision":
            return crop_decoded(Path(self.work.files[index]).read_bytes(), self.work.boxes[index])
        left, top, width, height = self.work.boxes[index]
        image = Image.open(self.work.files[index]).convert("RGB")
        pixels = F.pil_to_tensor(F.resized_crop(image, top, left, height, width, [SIZE, SIZE], antialias=True))
        return pixels if self.how == "pillow" else F.normalize(F.to_dtype(pixels, torch.float32, scale=True), MEAN, STD)


def dataloader(work: Work, how: str) -> Iterator[Any]:
    """The DataLoader of torch."""
    return iter(torch.utils.data.DataLoader(Files(work, how), BATCH, num_workers=work.workers))


def flatout_loader(work: Work, **options: Any) -> Iterator[Any]:
    """Ours; it draws the boxes that the others are given."""
    from flatout.loader.image_loader import ImageLoader
    from flatout.loader.sources.folders import ImageFolderSource

    source = ImageFolderSource(work.root / "images", labelled=False)
    repeats = len(work.order) // len(work.files)
    loader = ImageLoader(
        source,
        list(range(len(source.samples))) * repeats,
        size=SIZE,
        batch_size=BATCH,
        training=True,
        workers=work.workers,
        **options,
    )
    return (batch.images for batch in loader)


def dali(work: Work) -> Iterator[Any]:
    """NVIDIA DALI's CPU operators, decoding only the crop."""
    from nvidia.dali import fn, pipeline_def, types

    boxes = np.array([work.boxes[index] for index in work.order], np.int64)
    full = len(work.order) // BATCH
    anchors, shapes = boxes[:, 1::-1].copy(), boxes[:, :1:-1].copy()  # (top, left) and (height, width)
    at = [slice(n * BATCH, (n + 1) * BATCH) for n in range(full)]

    @pipeline_def(batch_size=BATCH, num_threads=work.workers, device_id=None, prefetch_queue_depth=2)
    def pipe() -> Any:
        data, _ = fn.readers.file(files=[work.files[index] for index in work.order], prefetch_queue_depth=2)
        anchor, shape = fn.external_source(
            source=([list(anchors[part]), list(shapes[part])] for part in at), num_outputs=2, dtype=types.INT64
        )
        image = fn.decoders.image_slice(data, anchor, shape, axis_names="HW", device="cpu")
        return fn.resize(image, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)

    made = pipe()
    made.build()
    for _ in range(full):
        yield made.run()[0].as_array()


def spdl(work: Work) -> Iterator[Any]:
    """Meta's SPDL: FFmpeg in threads; its scaling filter's bilinear, which looks at all pixels when it shrinks."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def decode(indices: list[int]) -> Any:
        packets = []
        for index in indices:
            left, top, width, height = work.boxes[index]
            chain = f"crop={width}:{height}:{left}:{top}:exact=1,scale={SIZE}:{SIZE}:flags=bilinear,format=rgb24"
            packets.append(spdl.io.decode_packets(spdl.io.demux_image(work.files[index]), filter_desc=chain))
        return spdl.io.to_numpy(spdl.io.convert_frames(packets))

    pipeline = (
        PipelineBuilder()
        .add_source(work.order)
        .aggregate(BATCH)
        .pipe(decode, concurrency=work.workers)
        .add_sink(3)
        .build(num_threads=work.workers)
    )
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def _shard_sample(sample: dict[str, Any], boxes: list[tuple[int, int, int, int]]) -> torch.Tensor:
    return crop_decoded(sample["jpg"], boxes[int(sample["__key__"].rpartition("/")[2])])


def web_dataset(work: Work) -> Iterator[Any]:
    """webdataset: tar shards read in order."""
    import webdataset

    shards = sorted(str(path) for path in (work.root / "shards").glob("*.tar"))
    shards = shards * (len(work.order) // len(work.files))
    found = webdataset.WebDataset(shards, shardshuffle=False).map(partial(_shard_sample, boxes=work.boxes))
    return iter(webdataset.WebLoader(found, batch_size=BATCH, num_workers=work.workers))


def _packed(index: int, files: list[str]) -> dict[str, Any]:
    return {"index": index, "data": Path(files[index]).read_bytes()}


def _crop_packed(sample: dict[str, Any], boxes: list[tuple[int, int, int, int]]) -> torch.Tensor:
    return crop_decoded(sample["data"], boxes[sample["index"]])


def lit_data(work: Work) -> Iterator[Any]:
    """litdata: its own chunks, written once."""
    import litdata

    where = work.root / "litdata"
    if not (where / "index.json").exists():
        litdata.optimize(
            partial(_packed, files=work.files),
            list(range(len(work.files))) * EPOCH_REPEATS,  # a longer epoch: its processes start anew with each
            str(where),
            chunk_bytes="64MB",
            num_workers=1,
        )

    chunks = litdata.StreamingDataset(str(where), shuffle=True, transform=partial(_crop_packed, boxes=work.boxes))
    for _ in range(len(work.order) // (EPOCH_REPEATS * len(work.files))):
        yield from litdata.StreamingDataLoader(chunks, batch_size=BATCH, num_workers=work.workers, drop_last=True)


def hugging_face(work: Work) -> Iterator[Any]:
    """Hugging Face datasets: an Arrow table of the encoded images."""
    import datasets

    where = work.root / "arrow"
    if not where.exists():
        rows = {"index": list(range(len(work.files))), "data": [Path(name).read_bytes() for name in work.files]}
        datasets.Dataset.from_dict(rows).save_to_disk(str(where))
    table = datasets.load_from_disk(str(where))

    def transform(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        pairs = zip(rows["data"], rows["index"], strict=True)
        return {"image": [crop_decoded(data, work.boxes[index]) for data, index in pairs]}

    table.set_transform(transform)
    sampler: Any = work.order
    loader = torch.utils.data.DataLoader(table, BATCH, sampler=sampler, num_workers=work.workers)
    return (rows["image"] for rows in loader)


def grain_loader(work: Work) -> Iterator[Any]:
    """Google's grain: its Dataset API with reading threads."""
    import grain

    def load(place: int) -> np.ndarray:
        index = work.order[place]
        return crop_decoded(Path(work.files[index]).read_bytes(), work.boxes[index]).numpy()

    made = (
        grain.MapDataset.range(len(work.order)).map(load).to_iter_dataset(grain.ReadOptions(num_threads=work.workers))
    )
    return iter(made.batch(BATCH))


def bare_decode(work: Work) -> Iterator[Any]:
    """The limit: libjpeg-turbo's full decode in one thread and nothing else; the images are not kept."""
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    data = [torch.frombuffer(bytearray(Path(name).read_bytes()), dtype=torch.uint8) for name in work.files]
    for place in range(0, len(work.order) - BATCH + 1, BATCH):
        for index in work.order[place : place + BATCH]:
            decode_jpeg(data[index], ImageReadMode.RGB)
        yield None


def flatout_pillow(work: Work, scaled: bool) -> Iterator[Any]:
    """Ours with Pillow; ``scaled``: large photographs decoded at a smaller scale."""
    return flatout_loader(work, backend="threads", decoder="pillow", scaled_decode=scaled)


USERS = "torchvision + Pillow + DataLoader, float32"
FLATOUT = "flatout"
DALI = "DALI, CPU operators"
LIMIT = "bare decode, nothing else"
LOADERS = {
    one.name: one
    for one in (
        Loader(USERS, None, partial(dataloader, how="pillow-float")),
        Loader("torchvision + Pillow + DataLoader, uint8", None, partial(dataloader, how="pillow")),
        Loader("torchvision.io + DataLoader, uint8", None, partial(dataloader, how="torchvision")),
        Loader(FLATOUT, None, partial(flatout_loader, backend="threads")),
        Loader("flatout, processes", None, partial(flatout_loader, backend="processes")),
        Loader("flatout, Pillow", None, partial(flatout_pillow, scaled=False)),
        Loader("flatout, Pillow, scaled decode", None, partial(flatout_pillow, scaled=True)),
        Loader(DALI, "nvidia-dali-cuda130", dali),
        Loader("SPDL", "spdl", spdl),
        Loader("webdataset", "webdataset", web_dataset),
        Loader("litdata", "litdata", lit_data),
        Loader("Hugging Face datasets", "datasets", hugging_face),
        Loader("grain", "grain", grain_loader),
        Loader(LIMIT, None, bare_decode),
    )
}


def as_uint8(batch: Any) -> np.ndarray:
    """A batch as uint8 (n, h, w, 3), whatever a loader gives."""
    pixels = torch.as_tensor(np.asarray(batch) if not isinstance(batch, torch.Tensor) else batch)
    if pixels.shape[1] == 3:
        pixels = pixels.permute(0, 2, 3, 1)
    if pixels.is_floating_point():
        pixels = ((pixels * torch.tensor(STD) + torch.tensor(MEAN)) * 255).round().clamp(0, 255)
    return pixels.to(torch.uint8).numpy()


def reference(data: bytes, box: tuple[int, int, int, int]) -> np.ndarray:
    """Pillow's antialiased crop and resize, uint8 (224, 224, 3)."""
    from PIL import Image

    left, top, width, height = box
    image = Image.open(io.BytesIO(data)).convert("RGB").crop((left, top, left + width, top + height))
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
