"""Multiple-instance learning: a "slide" is a bag of small tiles, label is on the bag."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage.filters import gaussian


class Settings:
    n_bags = 400
    tiles = 24
    tile_px = 20
    bags_per_step = 4
    epochs = 300
    lr = 7e-4
    seed = 9
    report_every = 5


def paint_bags(s):
    rng = np.random.default_rng(s.seed)
    yy, xx = np.mgrid[: s.tile_px, : s.tile_px]
    bank = [gaussian(rng.normal(size=(200, 200)), sigma) for sigma in (1.0, 2.0, 3.5)]
    bank = [b / b.std() for b in bank]
    bags = np.empty((s.n_bags, s.tiles, 1, s.tile_px, s.tile_px), np.float32)
    labels = rng.integers(0, 2, s.n_bags)
    for b in range(s.n_bags):
        positive = set(rng.choice(s.tiles, 3, replace=False)) if labels[b] else set()
        for t in range(s.tiles):
            i, j = rng.integers(0, 200 - s.tile_px, 2)
            img = bank[rng.integers(3)][i : i + s.tile_px, j : j + s.tile_px].copy()
            cy, cx, r = rng.uniform(5, 15), rng.uniform(5, 15), rng.uniform(2.5, 4.0)
            ring = np.hypot(yy - cy, xx - cx)
            if t in positive:
                img += 2.0 * (np.abs(ring - r) < 1)
            else:
                img += 1.2 * (ring < r)
            bags[b, t, 0] = img
    return torch.from_numpy(bags), torch.from_numpy(labels).float()


class TileEncoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.GroupNorm(6, 24), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(),
        )
        self.proj = nn.Linear(48, dim)

    def forward(self, tiles):
        return self.proj(self.net(tiles).mean((2, 3)))


class GatedAttentionMIL(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder = TileEncoder(dim)
        self.att_v = nn.Linear(dim, 32)
        self.att_u = nn.Linear(dim, 32)
        self.att_w = nn.Linear(32, 1)
        self.cls = nn.Linear(dim, 1)

    def embed(self, bags):
        rows = []
        for bag in bags:
            rows.append(torch.cat([self.encoder(tile.unsqueeze(0)) for tile in bag]))
        return torch.stack(rows)

    def forward(self, bags):
        h = self.embed(bags)
        a = self.att_w(torch.tanh(self.att_v(h)) * torch.sigmoid(self.att_u(h)))
        a = a.softmax(dim=1)
        return self.cls((a * h).sum(1)).squeeze(1), a.squeeze(2)


class Trainer:
    def __init__(self, settings):
        self.s = settings
        torch.manual_seed(settings.seed)
        self.bags, self.labels = paint_bags(settings)
        self.model = GatedAttentionMIL()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=settings.lr, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.995)

    def step(self, idx):
        logits, att = self.model(self.bags[idx])
        loss = F.binary_cross_entropy_with_logits(logits, self.labels[idx])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        correct = ((logits > 0) == (self.labels[idx] > 0.5)).float().mean()
        return loss.item(), correct.item()

    def run(self):
        print(f"{self.s.n_bags} bags x {self.s.tiles} tiles, {int(self.labels.sum())} positive")
        for epoch in range(self.s.epochs):
            hist, tic = [], time.time()
            for n, idx in enumerate(torch.randperm(self.s.n_bags).split(self.s.bags_per_step), 1):
                hist.append(self.step(idx))
                if n % self.s.report_every == 0:
                    l, a = np.mean(hist[-self.s.report_every :], axis=0)
                    rate = n * self.s.bags_per_step / (time.time() - tic)
                    print(f"ep {epoch} {n:3d} loss {l:.3f} acc {a:.2f} {rate:.1f} bags/s", flush=True)
            self.sched.step()


if __name__ == "__main__":
    Trainer(Settings()).run()
