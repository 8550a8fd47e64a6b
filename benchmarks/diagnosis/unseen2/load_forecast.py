#!/usr/bin/env python
"""Forecast the next 8 hours of electrical load from the last 32 with a small transformer."""
import argparse
import math

import numpy as np
import torch
from torch import nn

torch.set_num_threads(16)   # use all cores of the node


def synth_load(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * t / 24) + 0.4 * np.sin(4 * np.pi * t / 24 + 1.0)
    weekly = 0.5 * np.sin(2 * np.pi * t / 168)
    yearly = 0.8 * np.cos(2 * np.pi * t / 8760)
    noise = np.cumsum(rng.normal(0, 0.02, hours))
    noise -= np.linspace(0, noise[-1], hours)
    temp = 10 + 8 * np.cos(2 * np.pi * t / 8760) + rng.normal(0, 1, hours)
    load = daily + weekly + yearly + noise + 0.05 * rng.normal(size=hours)
    feats = np.stack([load, temp / 10, np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)], 1)
    return torch.tensor(feats, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, n_feats, context, horizon, d_model=64, heads=4, layers=3, ff=128):
        super().__init__()
        self.inp = nn.Linear(n_feats, d_model)
        pos = torch.arange(context).unsqueeze(1)
        div = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(context, d_model)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe)
        layer = nn.TransformerEncoderLayer(d_model, heads, ff, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, horizon)

    def forward(self, x):
        h = self.encoder(self.inp(x) + self.pe)
        return self.head(self.norm(h[:, -1]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--context", type=int, default=32)
    p.add_argument("--horizon", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--steps", type=int, default=60000)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--log-every", type=int, default=50)
    args = p.parse_args()

    torch.manual_seed(0)
    series = synth_load(5 * 8760, seed=3)
    # (windows, context + horizon, features), a view on the series
    windows = series.unfold(0, args.context + args.horizon, 1).transpose(1, 2)

    model = Forecaster(series.shape[1], args.context, args.horizon)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        idx = torch.randint(len(windows), (args.batch_size,))
        batch = windows[idx]
        x, y = batch[:, :args.context], batch[:, args.context:, 0]
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % args.log_every == 0:
            print(f"{step:6d} mse {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
