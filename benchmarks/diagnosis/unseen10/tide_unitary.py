"""Chapter 4 experiments: norm-preserving recurrences for tide gauge residuals (surge).

usage: python tide_unitary.py
"""
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

DATA = os.path.join(tempfile.gettempdir(), "tide_unitary")
N_GAUGES, N_HOURS = 48, 24 * 400
T_IN, HORIZON = 36, 6
HID, BS = 128, 256
LR, EPOCHS = 1e-3, 400

# constituents (deg/hour), from the admiralty tables
M2, S2, N2, K1, O1 = 28.984104, 30.0, 28.439730, 15.041069, 13.943036


def make_gauges(path, rng):
    t = np.arange(N_HOURS)
    out = np.zeros((N_GAUGES, N_HOURS, 3), np.float32)
    for g in range(N_GAUGES):
        tide = np.zeros(N_HOURS)
        for speed in (M2, S2, N2, K1, O1):
            tide += rng.gamma(2.0, 0.3) * np.cos(np.deg2rad(speed) * t + rng.uniform(0, 2 * math.pi))
        eps = rng.standard_normal(N_HOURS)
        wind = np.convolve(eps, np.exp(-np.arange(72) / 18.0), mode="same")
        pressure = np.convolve(np.roll(eps, 5), np.exp(-np.arange(96) / 30.0), mode="same")
        surge = 0.08 * np.roll(wind, 4) - 0.05 * pressure
        level = tide + surge + 0.02 * rng.standard_normal(N_HOURS)
        for k, v in enumerate((level, wind, pressure)):
            out[g, :, k] = (v - v.mean()) / v.std()
    np.save(path, out)


class ModReLU(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.b = nn.Parameter(torch.full((n,), -0.01))

    def forward(self, z):
        return torch.sign(z) * F.relu(z.abs() + self.b)


class SurgeNet(nn.Module):
    """input -> h_t = modrelu(W h_{t-1} + V x_t), W on the Stiefel manifold -> mlp"""

    def __init__(self, d_in, n, horizon):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(d_in, 2 * n), nn.Tanh(), nn.Linear(2 * n, n))
        rec = nn.Linear(n, n, bias=False)
        nn.init.orthogonal_(rec.weight)
        self.rec = orthogonal(rec, "weight")
        self.act = ModReLU(n)
        self.gate = nn.Linear(n, n)
        self.head = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, horizon))
        self.n = n

    def forward(self, x):
        B, T, _ = x.shape
        h = x.new_zeros(B, self.n)
        drive = self.inp(x)
        for t in range(T):
            cand = self.act(self.rec(h) + drive[:, t])
            g = torch.sigmoid(self.gate(cand))
            h = g * cand + (1 - g) * h
        return self.head(h)


def windows(series, n, rng):
    g = rng.integers(0, series.shape[0], n)
    s = rng.integers(0, series.shape[1] - T_IN - HORIZON, n)
    idx = s[:, None] + np.arange(T_IN + HORIZON)
    w = series[g[:, None], idx]
    return torch.from_numpy(w[:, :T_IN]), torch.from_numpy(w[:, T_IN:, 0].copy())


def orth_defect(net):
    with torch.no_grad():
        W = net.rec.weight
        return (W.T @ W - torch.eye(W.shape[0])).norm().item()


def main():
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    os.makedirs(DATA, exist_ok=True)
    fn = os.path.join(DATA, "gauges.npy")
    if not os.path.exists(fn):
        make_gauges(fn, np.random.default_rng(4))
    series = np.load(fn)
    split = int(0.9 * N_HOURS)
    train, held = series[:, :split], series[:, split:]

    net = SurgeNet(3, HID, HORIZON)
    n_par = sum(p.numel() for p in net.parameters())
    print("parameters", n_par, "| orthogonality defect", orth_defect(net))
    opt = torch.optim.RMSprop(net.parameters(), lr=LR, alpha=0.95)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.995)

    xv, yv = windows(held, 1024, np.random.default_rng(0))
    steps_per_epoch = 120
    it = 0
    t0 = time.time()
    for ep in range(EPOCHS):
        acc = 0.0
        for _ in range(steps_per_epoch):
            x, y = windows(train, BS, rng)
            pred = net(x)
            loss = F.smooth_l1_loss(pred, y)
            opt.zero_grad()
            loss.backward()
            # never explodes, but keep it for comparability with the LSTM baseline
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            acc += loss.item()
            it += 1
            if it % 20 == 0:
                print(f"it {it:6d} loss {loss.item():.4f}  ({time.time() - t0:.1f}s)", flush=True)
        sched.step()
        with torch.no_grad():
            mae = (net(xv) - yv).abs().mean().item()
        print(f"== epoch {ep} train {acc / steps_per_epoch:.4f} held-out mae {mae:.4f} defect {orth_defect(net):.2e}")


if __name__ == "__main__":
    main()
