"""Keyword spotting on one-second clips with a depthwise-separable CNN (a smaller DS-CNN)."""
import argparse
import csv
import math
import os
import shutil
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

RATE = 8000
WORDS = ["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "wow", "zero"]


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--clips", type=int, default=2400)
    p.add_argument("--batch-size", type=int, default=24)
    p.add_argument("--epochs", type=int, default=120)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--log-every", type=int, default=25)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def synth(n, gen):
    """Formant-like sweeps: each word has its own pair of trajectories."""
    t = torch.arange(RATE) / RATE
    y = torch.randint(len(WORDS), (n,), generator=gen)
    start = 250 + 110 * (y % 4).float()
    end = 300 + 160 * (y // 4).float()
    jitter = 1 + 0.12 * torch.randn(n, 2, generator=gen)
    f = (start * jitter[:, 0])[:, None] + ((end - start) * jitter[:, 1])[:, None] * t
    phase = 2 * math.pi * torch.cumsum(f, 1) / RATE
    shift = 0.15 * torch.randn(n, 1, generator=gen)
    env = torch.exp(-((t - 0.5 + shift) ** 2) / 0.03)
    wave = env * (torch.sin(phase) + 0.5 * torch.sin(2.7 * phase))
    return wave + 0.25 * torch.randn(n, RATE, generator=gen), y


def log_bands(wave, bands=40):
    spec = torch.stft(wave, 256, hop_length=80, window=torch.hann_window(256), return_complex=True).abs()
    pooled = F.adaptive_avg_pool2d(spec[:, None, :96], (bands, spec.shape[-1]))
    return torch.log(pooled + 1e-3)


class DSBlock(nn.Module):
    def __init__(self, c, stride=1):
        super().__init__()
        self.dw = nn.Conv2d(c, c, 3, stride=stride, padding=1, groups=c, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.pw = nn.Conv2d(c, c, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        self.act1 = nn.ReLU()
        self.act2 = nn.ReLU()

    def forward(self, x):
        x = self.act1(self.bn1(self.dw(x)))
        return self.act2(self.bn2(self.pw(x)))


def build(width):
    return nn.Sequential(
        nn.Conv2d(1, width, (10, 4), stride=2, padding=(4, 1), bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        DSBlock(width), DSBlock(width), DSBlock(width, 2), DSBlock(width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(width, len(WORDS)))


class ActivationLog:
    """Writes a table of how the activations of every layer are distributed."""

    def __init__(self, model, path, every):
        self.file = open(path, "w", newline="")
        self.out = csv.writer(self.file)
        self.out.writerow(["step", "layer", "mean", "std", "dead", "skew", "kurtosis", "p95"])
        self.every, self.step, self.current = every, 0, {}
        for name, m in model.named_modules():
            if not list(m.children()):
                m.register_forward_hook(lambda mod, inp, out, name=name: self.observe(name, out))

    def observe(self, name, out):
        a = out.detach().flatten()
        mu, sd = a.mean(), a.std() + 1e-8
        z = (a - mu) / sd
        dead = (a.abs() < 1e-6).float().mean()
        top = torch.quantile(a[:: max(1, a.numel() // 20000)], 0.95)
        self.current[name] = [v.item() for v in (mu, sd, dead, z.pow(3).mean(), z.pow(4).mean(), top)]

    def advance(self):
        if self.step % self.every == 0:
            for name, row in self.current.items():
                self.out.writerow([self.step, name] + [f"{v:.4g}" for v in row])
        self.step += 1


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    wave, y = synth(args.clips, gen)
    x = log_bands(wave)
    x = (x - x.mean()) / x.std()
    cut = int(0.9 * len(x))
    train = DataLoader(TensorDataset(x[:cut], y[:cut]), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(TensorDataset(x[cut:], y[cut:]), batch_size=120)

    model = build(args.width)
    folder = tempfile.mkdtemp(prefix="kws_")
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    monitor = ActivationLog(model, os.path.join(folder, "activations.csv"), args.log_every)
    try:
        for epoch in range(args.epochs):
            model.train()
            began = time.time()
            for xb, yb in train:
                loss = F.cross_entropy(model(xb), yb)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if monitor.step % args.log_every == 0:
                    print(f"epoch {epoch:3d} step {monitor.step:5d} loss {loss.item():.4f}", flush=True)
                monitor.advance()
            if epoch % 2 == 1:
                model.eval()
                with torch.no_grad():
                    hits = sum((model(a).argmax(1) == b).sum().item() for a, b in test)
                print(f"epoch {epoch:3d} accuracy {hits / (len(x) - cut):.3f} ({time.time() - began:.1f} s)")
    finally:
        monitor.file.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
