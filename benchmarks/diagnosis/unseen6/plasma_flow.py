"""Density estimation of detector hits with a coupling flow (RealNVP), plus an occasional two-sample check."""
import dataclasses
import math
import time

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Options:
    dims: int = 12
    events: int = 40_000
    batch: int = 1024
    couplings: int = 8
    hidden: int = 256
    steps: int = 12_000
    lr: float = 5e-4
    check_every: int = 400
    check_points: int = 250
    report_every: int = 20


def detector_events(opt, seed):
    """Rings, showers and correlated noise in a dozen channels."""
    rng = np.random.default_rng(seed)
    n, d = opt.events, opt.dims
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = rng.choice([1.0, 2.2], n) + rng.normal(0, 0.08, n)
    x = rng.normal(0, 1, (n, d)) @ (np.eye(d) + 0.3 * rng.normal(0, 1, (d, d)))
    x[:, 0] = radius * np.cos(angle)
    x[:, 1] = radius * np.sin(angle)
    x[:, 2] = np.abs(x[:, 2]) ** 0.7 + 0.3 * x[:, 0]
    x = (x - x.mean(0)) / x.std(0)
    return torch.from_numpy(x.astype(np.float32))


class Coupling(nn.Module):
    def __init__(self, dims, hidden, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(
            nn.Linear(dims, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, 2 * dims))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def shift_scale(self, kept):
        s, t = self.net(kept).chunk(2, -1)
        free = 1 - self.mask
        return torch.tanh(s) * 1.5 * free, t * free

    def forward(self, x):
        kept = x * self.mask
        s, t = self.shift_scale(kept)
        return kept + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(-1)

    def inverse(self, z):
        kept = z * self.mask
        s, t = self.shift_scale(kept)
        return kept + (1 - self.mask) * (z - t) * torch.exp(-s)


class Flow(nn.Module):
    def __init__(self, opt):
        super().__init__()
        masks = []
        gen = torch.Generator().manual_seed(0)
        for _ in range(opt.couplings // 2):
            m = torch.zeros(opt.dims)
            m[torch.randperm(opt.dims, generator=gen)[: opt.dims // 2]] = 1
            masks += [m, 1 - m]
        self.layers = nn.ModuleList(Coupling(opt.dims, opt.hidden, m) for m in masks)
        self.dims = opt.dims

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        return total - 0.5 * (x ** 2).sum(-1) - 0.5 * self.dims * math.log(2 * math.pi)

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, self.dims)
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


def energy_distance(a, b):
    """Plain double loop over rows; small sets only."""
    def mean_dist(p, q):
        total = 0.0
        for row in p:
            total += np.sqrt(((q - row) ** 2).sum(1)).mean()
        return total / len(p)

    a, b = a.numpy(), b.numpy()
    return 2 * mean_dist(a, b) - mean_dist(a, a) - mean_dist(b, b)


def grad_norms(model):
    return {name: p.grad.norm().item() for name, p in model.named_parameters() if p.grad is not None}


def main(opt=Options()):
    torch.manual_seed(0)
    data = detector_events(opt, 0)
    flow = Flow(opt)
    optim = torch.optim.Adam(flow.parameters(), lr=opt.lr)
    history = []
    began = time.time()
    for step in range(1, opt.steps + 1):
        rows = torch.randint(len(data), (opt.batch,))
        loss = -flow.log_prob(data[rows]).mean()
        optim.zero_grad()
        loss.backward()
        norms = grad_norms(flow)
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optim.step()
        history.append(loss.item())
        if step % opt.report_every == 0:
            top = max(norms, key=norms.get)
            print(f"{step:6d} nll {np.mean(history[-opt.report_every:]):.4f} largest grad {top} {norms[top]:.3f} "
                  f"{step / (time.time() - began):.1f}/s", flush=True)
        if step % opt.check_every == 0:
            pick = torch.randint(len(data), (opt.check_points,))
            print(f"       energy distance {energy_distance(flow.sample(opt.check_points), data[pick]):.5f}", flush=True)


if __name__ == "__main__":
    main()
