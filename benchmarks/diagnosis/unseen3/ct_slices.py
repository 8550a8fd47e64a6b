"""Liver segmentation on axial CT slices (synthetic phantoms). 2D U-Net, Dice + BCE."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--root", default=os.path.join(tempfile.gettempdir(), "ct_livers"))
    p.add_argument("--patients", type=int, default=6)
    p.add_argument("--depth", type=int, default=96)
    p.add_argument("--size", type=int, default=160)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-3)
    return p.parse_args()


def make_phantoms(args):
    os.makedirs(args.root, exist_ok=True)
    rng = np.random.default_rng(0)
    zz, yy, xx = np.meshgrid(np.linspace(-1, 1, args.depth), np.linspace(-1, 1, args.size),
                             np.linspace(-1, 1, args.size), indexing="ij")
    for i in range(args.patients):
        path = os.path.join(args.root, f"case_{i:03d}.npz")
        if os.path.exists(path):
            continue
        c = rng.uniform(-0.3, 0.3, 3)
        r = rng.uniform(0.3, 0.6, 3)
        liver = ((zz - c[0]) / r[0]) ** 2 + ((yy - c[1]) / r[1]) ** 2 + ((xx - c[2]) / r[2]) ** 2 < 1
        body = yy ** 2 + xx ** 2 < 0.9
        ct = np.where(body, 40, -1000) + 60 * liver
        ct = (ct + rng.integers(-12, 12, ct.shape)).astype(np.int16)
        np.savez_compressed(path + ".part.npz", ct=ct, mask=liver.astype(np.uint8))
        os.replace(path + ".part.npz", path)


class SliceDataset(Dataset):
    def __init__(self, root, depth):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root) if f.endswith(".npz") and ".part" not in f)
        self.items = [(f, z) for f in self.files for z in range(depth)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, z = self.items[i]
        case = np.load(path)
        ct = case["ct"][z].astype(np.float32)
        mask = case["mask"][z].astype(np.float32)
        ct = np.clip((ct + 160) / 400, 0, 1)
        if np.random.rand() < 0.5:
            ct, mask = ct[:, ::-1].copy(), mask[:, ::-1].copy()
        return torch.from_numpy(ct)[None], torch.from_numpy(mask)[None]


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w=6):
        super().__init__()
        self.d1, self.d2, self.d3 = block(1, w, 2), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = block(6 * w, 2 * w), block(3 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        c = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        c = self.u1(torch.cat([F.interpolate(c, scale_factor=2), a], 1))
        return F.interpolate(self.head(c), scale_factor=2, mode="bilinear")


def dice_loss(logit, y):
    p = torch.sigmoid(logit)
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


def main():
    args = get_args()
    torch.manual_seed(0)
    make_phantoms(args)
    loader = DataLoader(SliceDataset(args.root, args.depth), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=args.workers > 0, drop_last=True)
    net = UNet()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    t0, seen = time.time(), 0
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            logit = net(x)
            loss = dice_loss(logit, y) + F.binary_cross_entropy_with_logits(logit, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(x)
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {seen / (time.time() - t0):.1f} slices/s")


if __name__ == "__main__":
    main()
