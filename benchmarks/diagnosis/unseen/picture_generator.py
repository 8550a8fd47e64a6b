import argparse
import itertools
import pathlib
import random

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from skimage import data as samples

BATCH_SIZE = 16
SIDE = 64
CHANNELS = 24


def export_jpegs(folder):
    """Crops of four photographs; the label is the photograph."""
    rng = np.random.default_rng(2024)
    sources = [samples.astronaut(), samples.coffee(), samples.chelsea(), samples.rocket()]
    listing = []
    for k in range(160):
        label = k % len(sources)
        photo = Image.fromarray(sources[label]).convert("RGB")
        w, h = photo.size
        s = int(rng.integers(min(w, h) // 2, min(w, h) - 10))
        x, y = int(rng.integers(0, w - s)), int(rng.integers(0, h - s))
        crop = photo.crop((x, y, x + s, y + s)).resize((560, 560), Image.BILINEAR)
        target = folder / f"{k:04d}.jpg"
        crop.save(target, quality=88)
        listing.append((target, label))
    return listing


def read_picture(path):
    with Image.open(path) as picture:
        picture = picture.convert("RGB").resize((SIDE, SIDE), Image.BICUBIC)
    return np.asarray(picture, dtype=np.float32) / 255.0


def picture_stream(listing, seed):
    rng = random.Random(seed)
    order = list(listing)
    while True:
        rng.shuffle(order)
        for path, label in order:
            pixels = read_picture(path)
            if rng.random() < 0.5:
                pixels = pixels[:, ::-1]
            yield pixels.transpose(2, 0, 1), label


def batches(stream, size):
    while True:
        group = list(itertools.islice(stream, size))
        yield (torch.from_numpy(np.stack([p for p, _ in group])),
               torch.tensor([c for _, c in group]))


def build_net(classes):
    c = CHANNELS
    return nn.Sequential(
        nn.Conv2d(3, c, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(c, 2 * c, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(2 * c, 4 * c, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4 * c, classes),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(1)
    listing = export_jpegs(args.folder)
    net = build_net(classes=4)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    hits = seen = 0
    feed = batches(picture_stream(listing, seed=3), BATCH_SIZE)
    for step, (x, y) in zip(range(args.steps), feed):
        out = net(x)
        loss = criterion(out, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        hits += (out.argmax(1) == y).sum().item()
        seen += len(y)
        if (step + 1) % 100 == 0:
            print("step", step + 1, "loss %.4f" % loss.item(), "accuracy %.3f" % (hits / seen))
            hits = seen = 0


if __name__ == "__main__":
    main()
