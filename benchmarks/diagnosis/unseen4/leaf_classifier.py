"""Leaf disease classifier.

Trains a small residual network on a folder of leaf scans laid out as
``root/<class>/<image>.png``.  If the folder is missing, a synthetic stand-in is
rendered first so that the script can be tried out anywhere.
"""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, WeightedRandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

CLASSES = ["blight", "healthy", "mildew", "rust"]


def render_leaf(rng, label, size, grain):
    small = size // 4
    yy, xx = np.mgrid[0:small, 0:small].astype(np.float32) / small
    base = np.stack([0.2 + 0.1 * xx, 0.5 + 0.2 * yy, 0.15 + 0 * xx], -1)
    vein = np.sin(40 * (xx + rng.uniform(0.5, 1.5) * yy)) * 0.05
    img = base + vein[..., None]
    for _ in range(0 if label == 1 else 12):
        cx, cy, r = rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0.02, 0.08)
        mask = ((xx - cx) ** 2 + (yy - cy) ** 2) < r * r
        img[mask] = [[0.4, 0.3, 0.1], [0, 0, 0], [0.8, 0.8, 0.8], [0.7, 0.3, 0.0]][label]
    photo = Image.fromarray((img.clip(0, 1) * 215).astype(np.uint8)).resize((size, size))
    return Image.fromarray(np.asarray(photo) + np.roll(grain, rng.integers(size), axis=0))


def make_data(root, n, size, seed=0):
    rng = np.random.default_rng(seed)
    grain = rng.integers(0, 40, (size, size, 3), dtype=np.uint8)
    for k, name in enumerate(CLASSES):
        os.makedirs(os.path.join(root, name), exist_ok=True)
        for i in range(n // len(CLASSES)):
            path = os.path.join(root, name, f"{i:04d}.png")
            render_leaf(rng, k, size, grain).save(path, compress_level=3)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(cout)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(y)) + self.skip(x))


class LeafNet(nn.Module):
    def __init__(self, n_classes, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, stride=2, padding=2)
        self.body = nn.Sequential(
            Block(width, width * 2, 2), Block(width * 2, width * 4, 2)
        )
        self.head = nn.Linear(width * 4, n_classes)

    def forward(self, x):
        x = self.body(F.relu(self.stem(x)))
        return self.head(x.mean((2, 3)))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--data", default=os.path.join(tempfile.gettempdir(), "leaf_scans"))
    p.add_argument("--n-images", type=int, default=480)
    p.add_argument("--photo-size", type=int, default=320)
    p.add_argument("--samples-per-epoch", type=int, default=3200)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()

    torch.manual_seed(1)
    if not os.path.isdir(args.data):
        make_data(args.data, args.n_images, args.photo_size)

    tf = transforms.Compose([
        transforms.RandomResizedCrop(64, scale=(0.3, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.4, 0.5, 0.3], [0.2, 0.2, 0.2]),
    ])
    dataset = ImageFolder(args.data, transform=tf)
    # class-balanced sampling, several passes over the folder count as one epoch
    labels = torch.tensor(dataset.targets)
    weights = 1.0 / torch.bincount(labels).float()[labels]
    sampler = WeightedRandomSampler(weights, args.samples_per_epoch)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = LeafNet(len(dataset.classes)).to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)

    for epoch in range(args.epochs):
        t0, seen, correct, running = time.time(), 0, 0, 0.0
        for x, y in loader:
            logits = model(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, y, label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            running += loss.item() * len(y)
            correct += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        sched.step()
        print(f"epoch {epoch:3d}  loss {running / seen:.4f}  acc {correct / seen:.3f}  "
              f"{seen / (time.time() - t0):.0f} img/s", flush=True)
    torch.save(model.state_dict(), os.path.join(tempfile.gettempdir(), "leafnet.pt"))


if __name__ == "__main__":
    main()
