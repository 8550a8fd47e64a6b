#!/usr/bin/env python3
"""Texture recognition from a tar archive of PNG tiles, streamed by a background thread."""
import io
import queue
import sys
import tarfile
import threading
import time

import numpy as np
import torch
from PIL import Image
from skimage import data
from torch import nn

BATCH = 20
TILE = 256
BUFFERED = 64

INPUT = 64
TEXTURES = ("brick", "grass", "gravel", "coins", "moon")


def pack(archive):
    rng = np.random.default_rng(31)
    with tarfile.open(archive, "w") as tar:
        for k in range(60):
            label = k % len(TEXTURES)
            page = Image.fromarray(getattr(data, TEXTURES[label])())
            side = int(rng.integers(150, 280))
            x, y = int(rng.integers(0, page.width - side)), int(rng.integers(0, page.height - side))
            tile = page.crop((x, y, x + side, y + side)).resize((TILE, TILE), Image.BICUBIC)
            tint = rng.integers(-25, 25, 3)
            pixels = np.clip(np.asarray(tile, np.int16)[..., None] + tint, 0, 255).astype(np.uint8)
            picture = Image.fromarray(pixels)
            blob = io.BytesIO()
            picture.save(blob, "PNG", compress_level=1)
            entry = tarfile.TarInfo(f"{label}/{k:05d}.png")
            entry.size = blob.tell()
            blob.seek(0)
            tar.addfile(entry, blob)


class TarFeed(threading.Thread):
    def __init__(self, archive, size):
        super().__init__(daemon=True)
        self.archive = archive
        self.ready = queue.Queue(maxsize=size)

    def run(self):
        while True:
            with tarfile.open(self.archive) as tar:
                for member in tar:
                    picture = Image.open(io.BytesIO(tar.extractfile(member).read()))
                    small = picture.convert("RGB").resize((INPUT, INPUT), Image.LANCZOS)
                    self.ready.put((np.asarray(small), int(member.name.split("/")[0])))

    def batch(self, n):
        pairs = [self.ready.get() for _ in range(n)]
        images = torch.from_numpy(np.stack([p[0] for p in pairs]))
        return images.permute(0, 3, 1, 2).float() / 127.5 - 1, torch.tensor([p[1] for p in pairs])


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1), nn.GroupNorm(4, o), nn.ReLU())


archive = sys.argv[1] + "/textures.tar"
torch.manual_seed(8)
pack(archive)
feed = TarFeed(archive, BUFFERED)
feed.start()

model = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d(2),
                      nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, len(TEXTURES)))
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-4)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

t0 = time.perf_counter()
for iteration in range(1, 1_000_000):
    images, labels = feed.batch(BATCH)
    optimizer.zero_grad()
    loss = loss_fn(model(images), labels)
    loss.backward()
    optimizer.step()
    if iteration % 150 == 0:
        print(f"it {iteration}\t{loss.item():.3f}\t{iteration / (time.perf_counter() - t0):.1f} it/s")
