# Remove baseline wander and muscle noise from single-lead ECG strips.
# Usage: python ecg_denoise.py
import time

import numpy as np
import torch
from torch import nn

SEED = 17
STRIPS = 2000
LENGTH = 512
BATCH = 32
EPOCHS = 60
LR = 1e-3

np.random.seed(SEED)
torch.manual_seed(SEED)


def beat(t, centre, width, height):
    return height * np.exp(-0.5 * ((t - centre) / width) ** 2)


def make_strips(n, length):
    """Returns (noisy, clean), both (n, 1, length)."""
    t = np.arange(length)
    clean = np.zeros((n, length))
    for i in range(n):
        period = np.random.uniform(90, 150)
        for c in np.arange(np.random.uniform(0, period), length + period, period):
            clean[i] += beat(t, c, 2.5, 1.0) - beat(t, c + 6, 3.0, 0.25)
            clean[i] += beat(t, c - 25, 7.0, 0.15) + beat(t, c + 40, 12.0, 0.3)
    wander = 0.4 * np.sin(2 * np.pi * t / np.random.uniform(200, 600, (n, 1)) + np.random.rand(n, 1) * 6)
    noise = 0.15 * np.random.randn(n, length)
    noisy = clean + wander + noise
    return noisy[:, None], clean[:, None]


class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.a = nn.Conv1d(channels, channels, 9, padding=4 * dilation, dilation=dilation)
        self.b = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Denoiser(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.inp = nn.Conv1d(1, channels, 15, padding=7)
        self.blocks = nn.Sequential(*[Residual(channels, d) for d in (1, 2, 4, 8)])
        self.out = nn.Conv1d(channels, 1, 1)

    def forward(self, x):
        return x - self.out(self.blocks(torch.relu(self.inp(x))))


def snr(pred, target):
    err = (pred - target).square().mean()
    return 10 * torch.log10(target.var() / err).item()


if __name__ == "__main__":
    noisy, clean = make_strips(STRIPS, LENGTH)
    x_all = torch.from_numpy(noisy)
    y_all = torch.from_numpy(clean)
    n_val = 100
    x_train, y_train = x_all[n_val:], y_all[n_val:]
    x_val, y_val = x_all[:n_val], y_all[:n_val]
    print("train", tuple(x_train.shape), "val", tuple(x_val.shape))

    # keep the network in the same precision as the signals
    model = Denoiser().to(x_all.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    loss_fn = nn.SmoothL1Loss()

    for epoch in range(EPOCHS):
        began = time.time()
        model.train()
        perm = torch.randperm(len(x_train))
        losses = []
        for k in range(0, len(perm) - BATCH + 1, BATCH):
            idx = perm[k:k + BATCH]
            pred = model(x_train[idx])
            loss = loss_fn(pred, y_train[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) % 20 == 0:
                print(f"  epoch {epoch} batch {len(losses)} loss {np.mean(losses[-20:]):.5f}", flush=True)
        scheduler.step()

        model.eval()
        with torch.no_grad():
            quality = snr(model(x_val), y_val)
        print(f"epoch {epoch}: loss {np.mean(losses):.5f} val SNR {quality:.2f} dB "
              f"({time.time() - began:.1f}s)", flush=True)
