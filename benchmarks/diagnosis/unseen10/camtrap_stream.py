"""Species classifier for camera-trap pictures, trained from record shards."""
from __future__ import annotations

import argparse
import io
import json
import logging
import random
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("camtrap")
HEADER = struct.Struct("<II")  # length of the annotation, length of the picture
Sample = dict[str, Any]


@dataclass
class StreamConfig:
    root: Path = Path(tempfile.gettempdir()) / "camtrap_stream"
    shards: int = 8
    per_shard: int = 400
    size: int = 96
    batch_size: int = 12
    workers: int = 2
    min_confidence: float = 0.5
    species: int = 6


def write_shards(cfg: StreamConfig) -> list[Path]:
    from skimage import data

    cfg.root.mkdir(parents=True, exist_ok=True)
    paths = [cfg.root / f"traps-{i:04d}.rec" for i in range(cfg.shards)]
    if all(p.exists() for p in paths):
        return paths
    sources = [data.chelsea(), data.coffee(), data.rocket(), data.astronaut(), data.immunohistochemistry(),
               data.hubble_deep_field()]
    rng = np.random.default_rng(77)
    for path in paths:
        tmp = path.with_suffix(".tmp")
        with open(tmp, "wb") as out:
            for n in range(cfg.per_shard):
                label = int(rng.integers(cfg.species))
                src = sources[label]
                h, w = src.shape[:2]
                ch, cw = int(h * rng.uniform(0.6, 0.95)), int(w * rng.uniform(0.6, 0.95))
                y, x = int(rng.integers(h - ch)), int(rng.integers(w - cw))
                img = Image.fromarray(src[y:y + ch, x:x + cw]).resize((384, 288), Image.BILINEAR)
                buf = io.BytesIO()
                img.save(buf, "JPEG", quality=88)
                meta = {"species": label, "blank": bool(rng.random() < 0.88), "confidence": float(rng.beta(3, 2)),
                        "station": f"S{int(rng.integers(40)):02d}", "key": f"{path.stem}-{n:05d}"}
                note = json.dumps(meta).encode()
                out.write(HEADER.pack(len(note), buf.tell()) + note + buf.getvalue())
        tmp.rename(path)
    return paths


def read_records(paths: Iterable[Path]) -> Iterator[Sample]:
    for path in paths:
        with open(path, "rb", buffering=1 << 20) as f:
            while head := f.read(HEADER.size):
                n_note, n_jpg = HEADER.unpack(head)
                yield {"json": f.read(n_note), "jpg": f.read(n_jpg)}


class Decode:
    def __init__(self, size: int):
        self.size = size

    def __call__(self, stream: Iterable[Sample]) -> Iterator[Sample]:
        for s in stream:
            img = Image.open(io.BytesIO(s["jpg"])).convert("RGB")
            img = img.resize((self.size, self.size), Image.BICUBIC)
            yield {**s, "image": np.asarray(img)}


class Annotate:
    def __call__(self, stream: Iterable[Sample]) -> Iterator[Sample]:
        for s in stream:
            yield {**s, "meta": json.loads(s["json"])}


class Select:
    def __init__(self, min_confidence: float):
        self.min_confidence = min_confidence

    def __call__(self, stream: Iterable[Sample]) -> Iterator[Sample]:
        for s in stream:
            if not s["meta"]["blank"] and s["meta"]["confidence"] >= self.min_confidence:
                yield s


class ToExample:
    def __call__(self, stream: Iterable[Sample]) -> Iterator[tuple[torch.Tensor, int]]:
        for s in stream:
            x = torch.from_numpy(s["image"].copy()).permute(2, 0, 1).float().div_(255).sub_(0.45).div_(0.25)
            if random.random() < 0.5:
                x = x.flip(-1)
            yield x, s["meta"]["species"]


class ShardStream(IterableDataset):
    def __init__(self, paths: list[Path], stages: list[Callable], seed: int = 0):
        self.paths, self.stages, self.seed, self.epoch = paths, stages, seed, 0

    def __iter__(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        order = list(self.paths)
        random.Random(self.seed + self.epoch).shuffle(order)
        self.epoch += 1
        stream: Iterable = read_records(order[wid::n])
        for stage in self.stages:
            stream = stage(stream)
        yield from stream


def build_stages(cfg: StreamConfig) -> list[Callable]:
    return [Annotate(), Decode(cfg.size), Select(cfg.min_confidence), ToExample()]


def build_model(classes: int) -> nn.Module:
    def block(i: int, o: int, stride: int = 2) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]

    return nn.Sequential(*block(3, 64), *block(64, 64, 1), *block(64, 128), *block(128, 128, 1),
                         *block(128, 192), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1),
                         nn.Linear(192, classes))


def run(cfg: StreamConfig, epochs: int) -> None:
    torch.manual_seed(0)
    random.seed(0)
    paths = write_shards(cfg)
    loader = DataLoader(ShardStream(paths, build_stages(cfg)), batch_size=cfg.batch_size, num_workers=cfg.workers,
                        persistent_workers=True, prefetch_factor=4, drop_last=True)
    model = build_model(cfg.species)
    optim = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss()
    seen, running = 0, 0.0
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            optim.zero_grad(set_to_none=False)
            loss = criterion(model(x), y)
            loss.backward()
            optim.step()
            seen += len(y)
            running = 0.95 * running + 0.05 * loss.item()
            if i % 10 == 0:
                log.info("epoch %d batch %d loss %.4f ema %.4f images %d", epoch, i, loss.item(), running, seen)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=600)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    run(StreamConfig(workers=args.workers), args.epochs)
