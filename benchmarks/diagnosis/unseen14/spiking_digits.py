"""Recurrent spiking network on cochlea-like spike trains (surrogate gradients)."""
import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

NAME = "spiking_digits"


@dataclass
class Config:
    n_channels: int = 140
    n_hidden: int = 192
    n_classes: int = 20
    n_steps: int = 200
    n_samples: int = 1280
    batch_size: int = 64
    dt: float = 1e-3
    tau_mem: float = 20e-3
    tau_syn: float = 10e-3
    lr: float = 1e-3
    reg_upper: float = 1e-3
    updates: int = 800
    seed: int = 0


def make_spike_trains(cfg, folder):
    """Each class is a set of formant tracks; Poisson spikes around them."""
    path = os.path.join(folder, "spikes.npz")
    if os.path.exists(path):
        with np.load(path) as f:
            return f["spikes"], f["labels"]
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    t = np.linspace(0, 1, cfg.n_steps)
    channels = np.arange(cfg.n_channels)
    tracks = []
    for _ in range(cfg.n_classes):
        start, slope, bend = rng.uniform(0.1, 0.9, 3), rng.normal(0, 0.4, 3), rng.normal(0, 0.3, 3)
        centre = start[:, None] + slope[:, None] * t + bend[:, None] * np.sin(2 * np.pi * t)
        tracks.append(np.clip(centre, 0, 1) * cfg.n_channels)
    labels = rng.integers(0, cfg.n_classes, cfg.n_samples)
    spikes = np.zeros((cfg.n_samples, cfg.n_steps, cfg.n_channels), dtype=np.uint8)
    for i, y in enumerate(labels):
        centre = tracks[y] + rng.normal(0, 4)
        rate = np.exp(-0.5 * ((channels[None, None] - centre[..., None]) / 4.0) ** 2).sum(0)
        spikes[i] = rng.random(rate.shape, dtype=np.float32) < 0.25 * rate + 0.01
    tmp = path + ".tmp.npz"
    np.savez(tmp, spikes=spikes, labels=labels)
    os.replace(tmp, path)
    return spikes, labels


class SurrogateSpike(torch.autograd.Function):
    scale = 20.0

    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u)
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (u,) = ctx.saved_tensors
        return grad_output / (SurrogateSpike.scale * u.abs() + 1.0).square()


spike_fn = SurrogateSpike.apply


class RecurrentLIF(nn.Module):
    """Layer of current-based leaky integrate-and-fire neurons with recurrence."""

    def __init__(self, n_in, n_out, cfg):
        super().__init__()
        self.alpha = float(np.exp(-cfg.dt / cfg.tau_syn))
        self.beta = float(np.exp(-cfg.dt / cfg.tau_mem))
        self.w = nn.Linear(n_in, n_out, bias=False)
        self.v = nn.Linear(n_out, n_out, bias=False)
        nn.init.normal_(self.w.weight, std=1.4 / np.sqrt(n_in))
        nn.init.normal_(self.v.weight, std=0.5 / np.sqrt(n_out))

    def forward(self, x):
        h = self.w(x)
        batch, n_steps, n_out = h.shape
        syn = h.new_zeros(batch, n_out)
        mem = h.new_zeros(batch, n_out)
        out = h.new_zeros(batch, n_out)
        record = []
        for t in range(n_steps):
            syn = torch.add(h[:, t] + self.v(out), syn, alpha=self.alpha)
            mem = torch.add(syn, mem * (1.0 - out.detach()), alpha=self.beta)
            out = spike_fn(mem - 1.0)
            record.append(out)
        return torch.stack(record, dim=1)


class LeakyReadout(nn.Module):
    """Non-spiking output; the membrane is a fixed causal filter of its input."""

    def __init__(self, n_in, n_out, cfg):
        super().__init__()
        self.w = nn.Linear(n_in, n_out, bias=False)
        lag = torch.arange(cfg.n_steps)
        lag = (lag[:, None] - lag[None, :]).float()
        beta = float(np.exp(-cfg.dt / cfg.tau_mem))
        self.register_buffer("kernel", torch.where(lag >= 0, beta ** lag.clamp_min(0), 0.0) * (1 - beta))

    def forward(self, spikes):
        return torch.matmul(self.kernel, self.w(spikes))


class SpikingClassifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.hidden = RecurrentLIF(cfg.n_channels, cfg.n_hidden, cfg)
        self.readout = LeakyReadout(cfg.n_hidden, cfg.n_classes, cfg)

    def forward(self, x):
        spikes = self.hidden(x)
        return self.readout(spikes).amax(dim=1), spikes


class Trainer:
    def __init__(self, cfg, model):
        self.cfg = cfg
        self.model = model
        self.optimizer = torch.optim.Adamax(model.parameters(), lr=cfg.lr)

    def regularizer(self, spikes):
        rate = spikes.mean(dim=(0, 1))
        return self.cfg.reg_upper * F.relu(rate - 0.1).square().sum()

    def step(self, x, y):
        logits, spikes = self.model(x.float())
        loss = F.cross_entropy(logits, y) + self.regularizer(spikes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), logits.detach(), spikes.detach()

    def fit(self, loader):
        n, start = 0, time.time()
        while n < self.cfg.updates:
            for x, y in loader:
                loss, logits, spikes = self.step(x, y)
                n += 1
                if n % 10 == 0:
                    acc = (logits.argmax(1) == y).float().mean()
                    print(f"update {n:5d}  loss {loss.item():.4f}  acc {acc.item():.3f}  "
                          f"rate {spikes.mean().item() / self.cfg.dt:.1f} Hz  {time.time() - start:.1f} s",
                          flush=True)
                if n >= self.cfg.updates:
                    return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=Config.updates)
    parser.add_argument("--lr", type=float, default=Config.lr)
    parser.add_argument("--seed", type=int, default=Config.seed)
    args = parser.parse_args()
    cfg = Config(updates=args.updates, lr=args.lr, seed=args.seed)
    torch.manual_seed(cfg.seed)
    spikes, labels = make_spike_trains(cfg, os.path.join(tempfile.gettempdir(), NAME))
    loader = DataLoader(TensorDataset(torch.from_numpy(spikes), torch.from_numpy(labels)),
                        batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    model = SpikingClassifier(cfg)
    Trainer(cfg, model).fit(loader)


if __name__ == "__main__":
    main()
