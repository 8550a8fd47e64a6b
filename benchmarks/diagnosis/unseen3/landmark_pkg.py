"""landmarks: regression of five eye/mouth landmarks on drawn faces.

Sections: config, data, model, engine, entry point.
"""
from __future__ import annotations

import csv
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


# ---------------------------------------------------------------- config
@dataclass
class Config:
    out: str = os.path.join(tempfile.gettempdir(), "landmarks_run")
    n_train: int = 6000
    n_val: int = 160
    px: int = 64
    batch: int = 32
    workers: int = 1
    steps: int = 6000
    lr: float = 1e-3
    log_every: int = 50
    print_every: int = 10
    val_every: int = 300
    ckpt_every: int = 300


# ---------------------------------------------------------------- data
class DrawnFaces(Dataset):
    """Faces are stored as uint8 images; brightness and flips are drawn anew each time."""

    def __init__(self, n: int, px: int, seed: int, augment: bool):
        rng = np.random.default_rng(seed)
        c = np.arange(px, dtype=np.float32)
        base = np.array([[.3, .35], [.7, .35], [.5, .55], [.35, .75], [.65, .75]], dtype=np.float32)
        self.points = base[None] + rng.normal(0, 0.04, (n, 5, 2)).astype(np.float32)
        images = np.empty((n, px, px), np.uint8)
        for i in range(n):
            gx = np.exp(-((c[None] - self.points[i, :, :1] * px) / 2.5) ** 2)
            gy = np.exp(-((c[None] - self.points[i, :, 1:] * px) / 2.5) ** 2)
            images[i] = 170 - 120 * np.clip(gy.T @ gx, 0, 1) + rng.integers(0, 30, (px, px), dtype=np.uint8)
        self.images, self.augment = images, augment

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int):
        img = torch.from_numpy(self.images[i]).float().div_(255)
        pts = torch.from_numpy(self.points[i].copy())
        if self.augment:
            img = img * (0.8 + 0.4 * torch.rand(1))
            if torch.rand(1) < 0.5:
                img = img.flip(1)
                pts[:, 0] = 1 - pts[:, 0]
                pts = pts[[1, 0, 2, 4, 3]]
        return img[None], pts.flatten()


# ---------------------------------------------------------------- model
def build_model() -> nn.Module:
    layers, prev = [], 1
    for ch, stride in ((32, 2), (64, 1), (64, 2), (128, 1), (128, 2)):
        layers += [nn.Conv2d(prev, ch, 3, stride, 1, bias=False), nn.BatchNorm2d(ch), nn.ReLU(inplace=True)]
        prev = ch
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(prev * 64, 10))


# ---------------------------------------------------------------- engine
@torch.no_grad()
def evaluate(model, loader) -> float:
    model.eval()
    err = sum((model(x) - y).abs().mean(1).sum().item() for x, y in loader)
    model.train()
    return err / len(loader.dataset)


def fit(cfg: Config) -> None:
    os.makedirs(cfg.out, exist_ok=True)
    train_set = DrawnFaces(cfg.n_train, cfg.px, 0, True)
    val_set = DrawnFaces(cfg.n_val, cfg.px, 1, False)
    train = DataLoader(train_set, cfg.batch, shuffle=True, drop_last=True, num_workers=cfg.workers,
                       persistent_workers=True, prefetch_factor=4)
    val = DataLoader(val_set, 80)
    model = build_model()
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.steps)
    step, t0 = 0, time.time()
    with open(os.path.join(cfg.out, "log.csv"), "w", newline="") as f:
        log = csv.writer(f)
        log.writerow(["step", "loss", "lr"])
        while step < cfg.steps:
            for x, y in train:
                loss = nn.functional.smooth_l1_loss(model(x), y, beta=0.02)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                sched.step()
                step += 1
                if step % cfg.print_every == 0:
                    print(f"step {step}/{cfg.steps} loss {loss.item():.4f} "
                          f"{step * cfg.batch / (time.time() - t0):.1f} faces/s", flush=True)
                if step % cfg.log_every == 0:
                    log.writerow([step, f"{loss.item():.5f}", sched.get_last_lr()[0]])
                    f.flush()
                if step % cfg.val_every == 0:
                    print(f"  val error {evaluate(model, val):.4f}")
                if step % cfg.ckpt_every == 0:
                    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step},
                               os.path.join(cfg.out, "last.pt"))
                if step >= cfg.steps:
                    break


if __name__ == "__main__":
    torch.manual_seed(0)
    fit(Config())
