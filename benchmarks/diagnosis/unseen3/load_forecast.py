# Day-ahead forecasting of electricity load for a handful of substations.
import math
import time

import numpy as np
import torch
import torch.nn as nn

CFG = dict(
    n_series=40, hours=24 * 300, context=168, horizon=24, hidden=48, layers=2,
    batch=64, lr=1e-3, steps=6000, clip=1.0, log_every=10, seed=5,
)


def synth_load(n, hours, rng):
    t = np.arange(hours)
    out = np.zeros((n, hours), dtype=np.float32)
    for i in range(n):
        daily = np.sin(2 * np.pi * (t / 24 + rng.random())) + 0.4 * np.sin(4 * np.pi * (t / 24 + rng.random()))
        weekly = 0.5 * np.sin(2 * np.pi * (t / 168 + rng.random()))
        season = 0.8 * np.sin(2 * np.pi * t / (24 * 365) + rng.random() * 6)
        noise = np.convolve(rng.normal(size=hours), np.ones(6) / 6, mode="same")
        out[i] = daily * (1 + 0.3 * season) + weekly + season + 0.3 * noise
    return out


def calendar(hours):
    t = np.arange(hours)
    return np.stack(
        [np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24), np.sin(2 * np.pi * t / 168), np.cos(2 * np.pi * t / 168)],
        axis=1,
    ).astype(np.float32)


class LSTMLayer(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.W_i = nn.Linear(n_in + n_hidden, n_hidden)
        self.W_f = nn.Linear(n_in + n_hidden, n_hidden)
        self.W_o = nn.Linear(n_in + n_hidden, n_hidden)
        self.W_c = nn.Linear(n_in + n_hidden, n_hidden)

    def forward(self, x):
        # x: batch, time, features
        h = x.new_zeros(x.size(0), self.n_hidden)
        c = x.new_zeros(x.size(0), self.n_hidden)
        outputs = []
        for t in range(x.size(1)):
            z = torch.cat([x[:, t], h], dim=1)
            i = torch.sigmoid(self.W_i(z))
            f = torch.sigmoid(self.W_f(z))
            o = torch.sigmoid(self.W_o(z))
            g = torch.tanh(self.W_c(z))
            c = f * c + i * g
            h = o * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class Forecaster(nn.Module):
    def __init__(self, n_in, cfg):
        super().__init__()
        h = cfg["hidden"]
        self.rnn = nn.Sequential(LSTMLayer(n_in, h), *[LSTMLayer(h, h) for _ in range(cfg["layers"] - 1)])
        self.head = nn.Sequential(nn.Linear(h, 2 * h), nn.ReLU(), nn.Linear(2 * h, 2 * cfg["horizon"]))

    def forward(self, x):
        out = self.rnn(x)
        mu, log_sigma = self.head(out[:, -1]).chunk(2, dim=1)
        return mu, log_sigma.clamp(-5, 3)


def sample_batch(load, cal, cfg, rng):
    L, H = cfg["context"], cfg["horizon"]
    s = rng.integers(0, load.shape[0], cfg["batch"])
    t0 = rng.integers(0, load.shape[1] - L - H, cfg["batch"])
    rows = t0[:, None] + np.arange(L + H)
    window = load[s[:, None], rows]
    x = np.concatenate([window[:, :L, None], cal[rows[:, :L]]], axis=2)
    return torch.from_numpy(x), torch.from_numpy(window[:, L:])


def gaussian_nll(mu, log_sigma, y):
    return (log_sigma + 0.5 * ((y - mu) / log_sigma.exp()) ** 2).mean() + 0.5 * math.log(2 * math.pi)


rng = np.random.default_rng(CFG["seed"])
torch.manual_seed(CFG["seed"])
load = synth_load(CFG["n_series"], CFG["hours"], rng)
cal = calendar(CFG["hours"])
print("load matrix", load.shape)

model = Forecaster(1 + cal.shape[1], CFG)
optimizer = torch.optim.Adam(model.parameters(), lr=CFG["lr"])
print("parameters:", sum(p.numel() for p in model.parameters()))

running, tic = 0.0, time.time()
for step in range(1, CFG["steps"] + 1):
    x, y = sample_batch(load, cal, CFG, rng)
    mu, log_sigma = model(x)
    loss = gaussian_nll(mu, log_sigma, y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CFG["clip"])
    optimizer.step()
    running += loss.item()
    if step % CFG["log_every"] == 0:
        toc = time.time()
        rate = CFG["log_every"] * CFG["batch"] / (toc - tic)
        print(f"step {step:5d}  nll {running / CFG['log_every']:.4f}  {rate:.1f} windows/s", flush=True)
        running, tic = 0.0, time.time()
