"""Hourly electricity load: 72 h of load + weather in, next 24 h out (LSTM)."""
import argparse

import numpy as np
import torch
from torch import nn


def make_series(hours=24 * 365 * 6, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    day, week, year = 2 * np.pi * t / 24, 2 * np.pi * t / 168, 2 * np.pi * t / 8766
    temp = 10 - 9 * np.cos(year) - 3 * np.cos(day) + np.cumsum(rng.normal(0, .05, hours)) * 0.1
    wind = np.abs(rng.normal(5, 2, hours))
    load = 50 + 8 * np.sin(day - 2) + 5 * np.sin(week) + 0.4 * np.abs(temp - 16) + rng.normal(0, 1, hours)
    x = np.stack([load, temp, wind, np.sin(day), np.cos(day), np.sin(week), np.cos(week), np.sin(year)], 1)
    x = (x - x.mean(0)) / x.std(0)
    return torch.from_numpy(x.astype(np.float32))


class Forecaster(nn.Module):
    def __init__(self, n_in=8, hidden=128, horizon=24):
        super().__init__()
        self.lstm = nn.LSTM(n_in, hidden)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):               # x: time, batch, feature
        out, _ = self.lstm(x)
        return self.head(out[-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--past", type=int, default=72)
    ap.add_argument("--horizon", type=int, default=24)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=30)
    a = ap.parse_args()
    torch.manual_seed(0)

    series = make_series()
    n = len(series) - a.past - a.horizon
    past = torch.arange(a.past)[:, None]
    ahead = torch.arange(a.past, a.past + a.horizon)[None, :]

    net = Forecaster(horizon=a.horizon)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.epochs)
    step = 0
    for epoch in range(a.epochs):
        for start in torch.randperm(n).split(a.batch):
            x = series[past + start]                       # past, batch, 8
            y = series[start[:, None] + ahead, 0]          # batch, horizon
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} mse {loss.item():.4f}", flush=True)
        sched.step()


if __name__ == "__main__":
    main()
