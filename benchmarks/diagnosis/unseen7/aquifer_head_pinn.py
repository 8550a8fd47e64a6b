"""Physics-informed network for transient head in a confined aquifer with one pumping well.

Solves  Ss dh/dt = d/dx(K dh/dx) + d/dy(K dh/dy) - Q(x, y)  on the unit square,
with a heterogeneous K, fixed heads west and east, and a handful of observation wells.
"""
import math
import random
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


@dataclass
class Config:
    seed: int = 11
    width: int = 48
    depth: int = 6
    n_fourier: int = 12
    n_collocation: int = 24_000
    batch: int = 192
    n_boundary: int = 96
    n_wells: int = 14
    n_times: int = 20
    epochs: int = 1500
    lr: float = 1e-3
    storage: float = 0.35
    well_xy: tuple = (0.55, 0.45)
    well_rate: float = 2.0
    h_west: float = 1.0
    h_east: float = 0.6
    weights: dict = field(default_factory=lambda: {"pde": 1.0, "bc": 20.0, "ic": 10.0, "obs": 30.0})
    report_every: int = 400


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.autograd.set_detect_anomaly(True)


class HeadNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.register_buffer("freq", torch.randn(3, cfg.n_fourier) * 1.5)
        sizes = [2 * cfg.n_fourier + 3] + [cfg.width] * cfg.depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.out = nn.Linear(cfg.width, 1)
        for layer in self.hidden:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, xyt):
        proj = xyt @ self.freq
        z = torch.cat([xyt, torch.sin(proj), torch.cos(proj)], dim=1)
        z = torch.tanh(self.hidden[0](z))
        for layer in self.hidden[1:]:
            z = z + torch.tanh(layer(z))
        return self.out(z)


def conductivity(x, y):
    return 0.5 + 0.25 * torch.sin(2.5 * math.pi * x) * torch.cos(1.5 * math.pi * y) + 0.15 * y


def pumping(x, y, cfg):
    r2 = (x - cfg.well_xy[0]) ** 2 + (y - cfg.well_xy[1]) ** 2
    return cfg.well_rate * torch.exp(-r2 / 0.01)


def gradient(out, inp):
    return torch.autograd.grad(out, inp, torch.ones_like(out), create_graph=True)[0]


def pde_residual(net, points, cfg):
    points = points.clone().requires_grad_(True)
    h = net(points)
    g = gradient(h, points)
    x, y = points[:, 0:1], points[:, 1:2]
    k = conductivity(x, y)
    flux_x, flux_y = k * g[:, 0:1], k * g[:, 1:2]
    div = gradient(flux_x, points)[:, 0:1] + gradient(flux_y, points)[:, 1:2]
    return cfg.storage * g[:, 2:3] - div + pumping(x, y, cfg)


def boundary_batch(cfg):
    n = cfg.n_boundary
    west, east = torch.rand(n, 3), torch.rand(n, 3)
    west[:, 0], east[:, 0] = 0.0, 1.0
    target = torch.cat([torch.full((n, 1), cfg.h_west), torch.full((n, 1), cfg.h_east)])
    return torch.cat([west, east]), target


def initial_batch(cfg):
    p = torch.rand(cfg.n_boundary, 3)
    p[:, 2] = 0.0
    return p, cfg.h_west + (cfg.h_east - cfg.h_west) * p[:, 0:1]


def observations(cfg, rng):
    """Synthetic drawdown records: a Theis-like cone on top of the regional gradient."""
    xy = rng.uniform(0.1, 0.9, size=(cfg.n_wells, 2))
    t = np.linspace(0.05, 1.0, cfg.n_times)
    rows, heads = [], []
    for x, y in xy:
        r2 = (x - cfg.well_xy[0]) ** 2 + (y - cfg.well_xy[1]) ** 2 + 0.01
        for ti in t:
            base = cfg.h_west + (cfg.h_east - cfg.h_west) * x
            draw = 0.06 * np.exp(-r2 * cfg.storage / (4 * 0.5 * ti)) * np.log1p(ti / r2)
            rows.append((x, y, ti))
            heads.append(base - draw + rng.normal(0, 0.003))
    return (torch.tensor(rows, dtype=torch.float32),
            torch.tensor(heads, dtype=torch.float32).unsqueeze(1))


def make_loader(cfg, rng):
    pts = rng.uniform(size=(cfg.n_collocation, 3)).astype(np.float32)
    near = rng.normal(cfg.well_xy, 0.08, size=(cfg.n_collocation // 4, 2)).clip(0, 1)
    pts[: len(near), :2] = near
    ds = TensorDataset(torch.from_numpy(pts))
    sampler = BatchSampler(RandomSampler(ds), cfg.batch, drop_last=True)
    return DataLoader(ds, sampler=sampler, batch_size=None)


def main():
    cfg = Config()
    seed_everything(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    loader = make_loader(cfg, rng)
    obs_x, obs_h = observations(cfg, rng)

    net = HeadNet(cfg)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.998)
    print(f"{sum(p.numel() for p in net.parameters())} parameters, {len(loader)} batches per epoch")

    step, t0 = 0, time.time()
    for epoch in range(cfg.epochs):
        for (points,) in loader:
            bx, bh = boundary_batch(cfg)
            ix, ih = initial_batch(cfg)
            terms = {
                "pde": pde_residual(net, points, cfg).pow(2).mean(),
                "bc": (net(bx) - bh).pow(2).mean(),
                "ic": (net(ix) - ih).pow(2).mean(),
                "obs": (net(obs_x) - obs_h).pow(2).mean(),
            }
            loss = sum(cfg.weights[k] * v for k, v in terms.items())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % cfg.report_every == 0:
                parts = "  ".join(f"{k} {v.item():.2e}" for k, v in terms.items())
                print(f"[{time.time() - t0:7.1f}s] epoch {epoch} step {step} "
                      f"loss {loss.item():.4f}  {parts}", flush=True)
        sched.step()


if __name__ == "__main__":
    main()
