import argparse
import threading
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 256
BLOCKS = 14
WINDOW = 6000


class Telemetry(threading.Thread):
    """Collects per-example values and keeps their summaries up to date for the status page."""

    def __init__(self, window=WINDOW):
        super().__init__(daemon=True)
        self.series = {}
        self.window = window
        self.summary = {}
        self.done = threading.Event()

    def push(self, name, values):
        self.series.setdefault(name, deque(maxlen=self.window)).extend(values)

    def summarise(self, values):
        ordered = sorted(values)
        n = len(ordered)
        mean = sum(ordered) / n
        spread = 0.0
        for v in ordered:
            spread += (v - mean) ** 2
        low, high = ordered[0], ordered[-1]
        scale = (high - low) / 20 or 1.0
        bins = [0] * 21
        for v in ordered:
            bins[int((v - low) / scale)] += 1
        smooth = values[0]
        for v in values:
            smooth = 0.99 * smooth + 0.01 * v
        return dict(n=n, mean=mean, std=(spread / n) ** 0.5, p50=ordered[n // 2], p95=ordered[int(0.95 * (n - 1))],
                    smooth=smooth, bins=bins)

    def run(self):
        while not self.done.wait(0.001):
            for name, values in list(self.series.items()):
                if values:
                    self.summary[name] = self.summarise(list(values))


class Sensors(Dataset):
    """Readings of 32 sensors of a machine and how much of its life is left."""

    def __init__(self, n=20_000):
        g = torch.Generator().manual_seed(2)
        self.x = torch.randn(n, 32, generator=g)
        w = torch.randn(32, 4, generator=g)
        z = torch.tanh(self.x @ w)
        self.y = z[:, 0] * z[:, 1] + 0.5 * z[:, 2] - z[:, 3] ** 2 + 0.05 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitems__(self, indices):
        return [(self.x[indices], self.y[indices])]


def take_only(items):
    return items[0]


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2000)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--lr", type=float, default=7e-4)
    return p.parse_args()


def run(opt):
    torch.manual_seed(0)
    loader = DataLoader(Sensors(), batch_size=BATCH, shuffle=True, num_workers=1, collate_fn=take_only,
                        persistent_workers=True, drop_last=True)
    net = nn.Sequential(nn.Linear(32, opt.dim), *[Block(opt.dim) for _ in range(BLOCKS)],
                        nn.LayerNorm(opt.dim), nn.Linear(opt.dim, 1))
    adam = torch.optim.Adam(net.parameters(), lr=opt.lr, fused=True)
    telemetry = Telemetry()
    telemetry.start()
    for epoch in range(opt.epochs):
        for x, y in loader:
            error = (net(x).squeeze(1) - y).square()
            adam.zero_grad()
            error.mean().backward()
            adam.step()
            telemetry.push("error", error.detach().tolist())
        s = telemetry.summary.get("error")
        if s and epoch % 5 == 0:
            print(f"[{epoch:4d}] mean {s['mean']:.4f} p50 {s['p50']:.4f} p95 {s['p95']:.4f}", flush=True)
    telemetry.done.set()


if __name__ == "__main__":
    run(parse())
