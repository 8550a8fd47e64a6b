"""Classify tiles cut from microscope / fundus / natural photographs.

Tiles are cut once from a handful of large photographs and kept as uint8
arrays.  Every epoch sees a freshly warped version of each tile.

    python tissue_tiles.py --epochs 40 --lr 2e-3
"""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageFilter
from scipy.ndimage import gaussian_filter, map_coordinates
from skimage import data as skdata
from torch.utils.data import DataLoader, Dataset

CLASSES = ["immunohistochemistry", "retina", "hubble_deep_field", "coffee", "chelsea", "astronaut", "rocket"]


def cut_tiles(per_class, tile, seed):
    rng = np.random.default_rng(seed)
    tiles, labels = [], []
    for label, name in enumerate(CLASSES):
        photo = getattr(skdata, name)()[..., :3]
        h, w = photo.shape[:2]
        if min(h, w) < tile + 20:
            scale = (tile + 40) / min(h, w)
            photo = np.asarray(Image.fromarray(photo).resize((int(w * scale), int(h * scale)), Image.BILINEAR))
            h, w = photo.shape[:2]
        for _ in range(per_class):
            y, x = rng.integers(0, h - tile), rng.integers(0, w - tile)
            tiles.append(photo[y:y + tile, x:x + tile].copy())
            labels.append(label)
    return np.stack(tiles), np.array(labels)


def elastic(img, alpha, sigma):
    """Simard-style elastic deformation, same field for all channels."""
    h, w = img.shape[:2]
    dx = gaussian_filter(np.random.uniform(-1, 1, (h, w)), sigma) * alpha
    dy = gaussian_filter(np.random.uniform(-1, 1, (h, w)), sigma) * alpha
    yy, xx = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    where = np.stack([yy + dy, xx + dx])
    return np.stack([map_coordinates(img[..., c], where, order=1, mode="reflect") for c in range(3)], -1)


def perspective_coeffs(w, h, amount):
    """Eight coefficients for PIL's PERSPECTIVE transform with jittered corners."""
    src = np.array([(0, 0), (w, 0), (w, h), (0, h)], float)
    dst = src + np.random.uniform(-amount, amount, (4, 2)) * (w, h)
    rows = []
    for (x, y), (u, v) in zip(dst, src):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    return np.linalg.solve(np.array(rows), src.reshape(-1))


class Tiles(Dataset):
    def __init__(self, tiles, labels, size, train):
        self.tiles, self.labels = tiles, labels
        self.size, self.train = size, train

    def __len__(self):
        return len(self.tiles)

    def augment(self, img):
        s = img.width / 320
        if random.random() < 0.6:
            img = Image.fromarray(elastic(np.asarray(img), alpha=220 * s * s, sigma=9 * s))
        if random.random() < 0.5:
            coeffs = perspective_coeffs(img.width, img.height, 0.08)
            img = img.transform(img.size, Image.PERSPECTIVE, coeffs, Image.BICUBIC)
        if random.random() < 0.3:
            img = img.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 4.0) * s))
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        return img

    def __getitem__(self, i):
        img = Image.fromarray(self.tiles[i])
        if self.train:
            img = self.augment(img)
        img = img.resize((self.size, self.size), Image.BILINEAR)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div_(127.5).sub_(1.0)
        return x, int(self.labels[i])


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm2d(cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + self.skip(x))


def build(width, n_classes):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(),
        Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, n_classes))


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return right / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--batch-size", type=int, default=12)
    p.add_argument("--per-class", type=int, default=70)
    p.add_argument("--tile", type=int, default=320)
    p.add_argument("--size", type=int, default=96)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()

    torch.manual_seed(0)
    tiles, labels = cut_tiles(a.per_class, a.tile, 0)
    vt, vl = cut_tiles(8, a.tile, 1)
    train = DataLoader(Tiles(tiles, labels, a.size, True), a.batch_size, shuffle=True, drop_last=True,
                       num_workers=a.workers, persistent_workers=a.workers > 0)
    val = DataLoader(Tiles(vt, vl, a.size, False), 28)

    model = build(a.width, len(CLASSES))
    opt = torch.optim.SGD(model.parameters(), a.lr, momentum=0.9, nesterov=True)
    step, t0 = 0, time.time()
    for epoch in range(a.epochs):
        for x, y in train:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} {step / (time.time() - t0):.2f} it/s", flush=True)
        print(f"== epoch {epoch} val acc {evaluate(model, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
