"""Keypoints of a falling T-shaped rod from small rendered frames."""
import time

import numpy as np
import torch
from torch import nn

FRAME = 40
BATCH = 48
CHANNELS = 24


def render(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:FRAME, :FRAME].astype(np.float32)
    centre = rng.uniform(12, FRAME - 12, (n, 2)).astype(np.float32)
    angle = rng.uniform(-np.pi, np.pi, n).astype(np.float32)
    along = np.stack([np.cos(angle), np.sin(angle)], 1)
    tip = centre + 9 * along
    dx, dy = xx - centre[:, :1, None], yy - centre[:, 1:, None]
    u = dx * along[:, :1, None] + dy * along[:, 1:, None]
    v = -dx * along[:, 1:, None] + dy * along[:, :1, None]
    rod = (np.abs(v) < 1.5) & (u > 0) & (u < 9)
    bar = (np.abs(u) < 1.5) & (np.abs(v) < 5)
    frames = (rod | bar).astype(np.float32) + 0.1 * rng.standard_normal((n, FRAME, FRAME), dtype=np.float32)
    points = np.concatenate([centre, tip], 1) / FRAME
    return torch.from_numpy(frames[:, None]), torch.from_numpy(points)


def stage(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class Pose(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.features = nn.Sequential(stage(1, c), stage(c, 2 * c), stage(2 * c, 3 * c))
        self.regress = nn.Sequential(nn.Flatten(), nn.Linear(3 * c * (FRAME // 8) ** 2, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, x):
        return self.regress(self.features(x))


class Experiment:
    def __init__(self):
        torch.manual_seed(100)
        self.x, self.y = render(3000, 0)
        self.xv, self.yv = render(200, 1)
        self.model = Pose(CHANNELS)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.loss = nn.SmoothL1Loss(beta=0.05)

    def epoch(self):
        self.model.train()
        total = torch.zeros(())
        batches = torch.randperm(len(self.x)).split(BATCH)
        for rows in batches:
            loss = self.loss(self.model(self.x[rows]), self.y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(batches)

    @torch.no_grad()
    def pixels(self):
        self.model.eval()
        return (self.model(self.xv) - self.yv).abs().mean().item() * FRAME


if __name__ == "__main__":
    experiment = Experiment()
    for number in range(1, 1001):
        began = time.perf_counter()
        loss = experiment.epoch()
        print(f"epoch {number:3d}  loss {loss:.5f}  error {experiment.pixels():.2f} px  "
              f"{time.perf_counter() - began:.1f} s", flush=True)
