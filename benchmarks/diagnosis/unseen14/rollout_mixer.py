"""Autoregressive global-forecast surrogate on an icosahedral grid."""
import argparse
import csv
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NAME = "rollout_mixer"
N_CELLS, N_VARS = 162, 12


def simulate_reanalysis(n_times, seed):
    """Damped, advected, weakly nonlinear stochastic modes on a set of cells."""
    folder = os.path.join(tempfile.gettempdir(), NAME)
    path = os.path.join(folder, f"states_{n_times}.npy")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        rng = np.random.default_rng(seed)
        k = np.arange(N_CELLS)
        z = 1 - 2 * (k + 0.5) / N_CELLS
        phi = np.pi * (1 + 5 ** 0.5) * k
        pos = np.stack([np.sqrt(1 - z * z) * np.cos(phi), np.sqrt(1 - z * z) * np.sin(phi), z], 1)
        near = np.exp(8 * (pos @ pos.T - 1))
        near /= near.sum(1, keepdims=True)
        couple = np.linalg.qr(rng.normal(size=(N_VARS, N_VARS)))[0]
        x = rng.normal(size=(N_CELLS, N_VARS))
        out = np.empty((n_times, N_CELLS, N_VARS), np.float32)
        for t in range(n_times):
            x = 0.9 * x + 0.3 * np.tanh(near @ x @ couple) + 0.15 * near @ rng.normal(size=x.shape)
            out[t] = x
        out = (out - out.mean((0, 1))) / out.std((0, 1))
        np.save(path + ".tmp.npy", out)
        os.replace(path + ".tmp.npy", path)
    return np.load(path, mmap_mode="r")


class Windows(Dataset):
    def __init__(self, states, horizon):
        self.states = states
        self.horizon = horizon

    def __len__(self):
        return len(self.states) - self.horizon

    def __getitem__(self, i):
        return np.array(self.states[i:i + self.horizon + 1])


def collate(windows):
    return torch.from_numpy(np.stack(windows))


class MixerBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Parameter(torch.randn(N_CELLS, N_CELLS) / N_CELLS ** 0.5)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + torch.matmul(self.mix, self.norm1(x))
        return x + self.fc2(F.relu(self.fc1(self.norm2(x)), inplace=True))


class Forecaster(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.encode = nn.Linear(N_VARS, dim)
        self.place = nn.Parameter(torch.zeros(N_CELLS, dim))
        self.blocks = nn.ModuleList(MixerBlock(dim) for _ in range(depth))
        self.decode = nn.Linear(dim, N_VARS)

    def forward(self, state):
        h = self.encode(state) + self.place
        for block in self.blocks:
            h = block(h)
        return state + self.decode(h)


class MetricsFile:
    def __init__(self, path):
        self.handle = open(path, "w", newline="")
        self.writer = csv.writer(self.handle)
        self.writer.writerow(["step", "seconds", "loss", "grad_norm"])

    def write(self, *row):
        self.writer.writerow(row)
        self.handle.flush()


class RolloutTrainer:
    def __init__(self, args, model, metrics):
        self.args, self.model, self.metrics = args, model, metrics
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        weight = torch.linspace(1.5, 0.5, N_CELLS)
        self.area = (weight / weight.mean())[:, None]

    def rollout_loss(self, window):
        state = window[:, 0]
        losses = []
        for lead in range(1, self.args.horizon + 1):
            state = self.model(state)
            losses.append((self.area * (state - window[:, lead]).square()).mean())
        return losses

    def run(self, loader):
        step, start = 0, time.time()
        while step < self.args.steps:
            for window in loader:
                losses = self.rollout_loss(window)
                loss = torch.stack(losses).mean()
                self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                step += 1
                self.metrics.write(step, round(time.time() - start, 3), loss.item(), norm.item())
                if step % 10 == 0:
                    per_lead = " ".join(f"{x.item():.3f}" for x in losses)
                    print(f"[{step:5d}] rmse^2 by lead: {per_lead}", flush=True)
                if step >= self.args.steps:
                    break


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--times", type=int, default=3000)
    p.add_argument("--horizon", type=int, default=3)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=10)
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    states = simulate_reanalysis(args.times, args.seed)
    loader = DataLoader(Windows(states, args.horizon), batch_size=args.batch_size, shuffle=True,
                        drop_last=True, collate_fn=collate, num_workers=0)
    model = Forecaster(args.dim, args.depth)
    RolloutTrainer(args, model, MetricsFile("metrics.csv")).run(loader)


if __name__ == "__main__":
    main()
