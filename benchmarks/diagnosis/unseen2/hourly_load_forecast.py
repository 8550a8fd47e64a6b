"""Forecast the next day of electricity load from the four weeks before (synthetic meters)."""
import threading
import time
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn

HISTORY, HORIZON = 672, 24
BATCH = 320


def make_meters(n=400, hours=4000, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    base = 1.0 + 0.4 * np.sin(2 * np.pi * t / 24) + 0.15 * np.sin(2 * np.pi * t / 168)
    phase = rng.integers(0, 24, size=n)
    scale = rng.uniform(0.5, 2.0, size=(n, 1))
    load = np.stack([np.roll(base, p) for p in phase]) * scale
    load += 0.1 * rng.standard_normal(load.shape)
    return torch.from_numpy(load.astype(np.float32))


class LossMonitor(threading.Thread):
    """Keeps a bootstrap confidence interval of the recent loss for the status line."""

    def __init__(self, window=500, draws=40):
        super().__init__(daemon=True)
        self.losses = deque(maxlen=window)
        self.draws = draws
        self.interval = (float("nan"), float("nan"))

    def add(self, value):
        self.losses.append(value)

    def run(self):
        while True:
            values = list(self.losses)
            if len(values) < 10:
                time.sleep(0.05)
                continue
            means = []
            for _ in range(self.draws):
                total = 0.0
                for _ in range(len(values)):
                    total += values[int(random.random() * len(values))]
                means.append(total / len(values))
            means.sort()
            self.interval = (means[1], means[-2])


class Forecaster(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(HISTORY, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, HORIZON),
        )

    def forward(self, x):
        return self.body(x)


def main():
    torch.manual_seed(0)
    load = make_meters()
    windows = load.unfold(1, HISTORY + HORIZON, 1)      # a view, nothing is copied
    meters, starts = windows.shape[:2]

    model = Forecaster()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
    criterion = nn.SmoothL1Loss()

    monitor = LossMonitor()
    monitor.start()

    begin = time.time()
    for step in range(1, 20001):
        m = torch.randint(meters, (BATCH,))
        s = torch.randint(starts, (BATCH,))
        chunk = windows[m, s]
        x, y = chunk[:, :HISTORY], chunk[:, HISTORY:]
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.add(loss.item())
        if step % 20 == 0:
            low, high = monitor.interval
            print(f"step {step:6d}  loss {loss.item():.4f}  [{low:.4f}, {high:.4f}]  {time.time() - begin:.0f}s", flush=True)


if __name__ == "__main__":
    main()
