"""Gated residual network on a wide table, compiled."""
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Stats:
    """Recent activation levels, by part of the network."""

    def __init__(self, keep=1000):
        self.levels = {"norm": deque(maxlen=keep), "gate": deque(maxlen=keep)}

    @torch.compiler.disable
    def record(self, part, h):
        level = float(np.abs(h.detach().numpy()).mean())
        self.levels[part].append(level)
        if level > 1e3:
            print(f"large activations after {part}: {level:.1f}")

    def summary(self):
        return "  ".join(f"{k} {np.mean(v):.3f}" for k, v in self.levels.items() if v)


stats = Stats()


class GatedBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        h = self.norm(x)
        stats.record("norm", h)
        h = F.silu(self.gate(h)) * self.value(h)
        stats.record("gate", h)
        return x + self.scale * self.out(h)


class GatedNet(nn.Module):
    def __init__(self, features, classes, width=64, hidden=96, depth=10):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.blocks = nn.ModuleList([GatedBlock(width, hidden) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def table(rows=150_000, features=50, classes=7):
    g = torch.Generator().manual_seed(9)
    x = torch.randn(rows, features, generator=g)
    w = torch.randn(features, classes, generator=g)
    v = torch.randn(features, classes, generator=g)
    return x, (x @ w + (x * x) @ v * 0.5).argmax(1)


def main():
    torch.manual_seed(0)
    x, y = table()
    net = GatedNet(x.shape[1], 7)
    model = torch.compile(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    batch, start, step = 64, time.time(), 0
    for epoch in range(100):
        order = torch.randperm(len(x))
        for idx in order[:len(x) // batch * batch].split(batch):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} | {stats.summary()} | "
                      f"{time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
