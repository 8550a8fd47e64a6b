#!/usr/bin/env python
"""2D slice segmentation on a set of CT-like volumes stored as HDF5."""
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    root: Path = Path(tempfile.gettempdir()) / "ct_cases"
    cases: int = 16
    depth: int = 64
    side: int = 144
    batch: int = 16
    epochs: int = 120
    lr: float = 1e-3
    base: int = 10
    report_every: int = 20


def write_cases(cfg: Config) -> None:
    cfg.root.mkdir(parents=True, exist_ok=True)
    z, y, x = np.mgrid[-1:1:cfg.depth * 1j, -1:1:cfg.side * 1j, -1:1:cfg.side * 1j].astype(np.float32)
    for c in range(cfg.cases):
        rng = np.random.default_rng(100 + c)
        mask = np.zeros(z.shape, np.uint8)
        for _ in range(3):
            cz, cy, cx = rng.uniform(-0.5, 0.5, 3)
            mask |= (((z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2) < rng.uniform(0.15, 0.35) ** 2)
        small = rng.normal(0, 60, (cfg.depth, cfg.side, cfg.side)).astype(np.float32)
        vol = gaussian_filter(small, 0.6) + 120 * mask
        with h5py.File(cfg.root / f"case_{c:02d}.h5", "w") as f:
            opts = dict(chunks=(1, cfg.side, cfg.side), compression="gzip", compression_opts=2)
            f.create_dataset("image", data=vol.astype(np.int16), **opts)
            f.create_dataset("label", data=mask, **opts)


class SliceDataset(Dataset):
    """One item is one axial slice with its label map."""

    def __init__(self, root: Path):
        self.index = []
        for path in sorted(root.glob("case_*.h5")):
            with h5py.File(path, "r") as f:
                self.index += [(path, z) for z in range(f["image"].shape[0])]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        path, z = self.index[i]
        with h5py.File(path, "r") as f:
            image = f["image"][:][z]
            label = f["label"][:][z]
        image = image.astype(np.float32) / 100.0
        if np.random.rand() < 0.5:
            image, label = image[:, ::-1].copy(), label[:, ::-1].copy()
        return torch.from_numpy(image)[None], torch.from_numpy(label).long()


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class TinyUNet(nn.Module):
    def __init__(self, base, classes=2):
        super().__init__()
        self.inc = nn.Conv2d(1, base, 3, stride=2, padding=1)
        self.d1, self.d2 = double_conv(base, base * 2), double_conv(base * 2, base * 4)
        self.u1 = double_conv(base * 6, base * 2)
        self.out = nn.Conv2d(base * 2, classes, 1)

    def forward(self, x):
        a = self.d1(self.inc(x))
        b = self.d2(F.max_pool2d(a, 2))
        up = F.interpolate(b, scale_factor=2, mode="nearest")
        y = self.out(self.u1(torch.cat([a, up], 1)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


def dice(pred, target):
    p, t = (pred == 1), (target == 1)
    return (2 * (p & t).sum() / (p.sum() + t.sum()).clamp(min=1)).item()


def main(cfg=Config()):
    torch.manual_seed(0)
    if not (cfg.root / f"case_{cfg.cases - 1:02d}.h5").exists():
        write_cases(cfg)
    data = SliceDataset(cfg.root)
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=2,
                        persistent_workers=True, drop_last=True)
    net = TinyUNet(cfg.base).to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    step = 0
    for epoch in range(cfg.epochs):
        start = time.time()
        for image, label in loader:
            logits = net(image.to(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, label, weight=torch.tensor([0.3, 1.0]))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % cfg.report_every == 0:
                print(f"step {step:6d} loss {loss.item():.4f} dice {dice(logits.argmax(1), label):.3f}",
                      flush=True)
        print(f"epoch {epoch} finished in {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
