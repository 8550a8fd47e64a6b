"""Surrogate for the vibration response of a rotor on two journal bearings.

Maps eight design parameters (+ a coarse speed sweep) to the amplitude curve.
Trained with NAdam and decoupled decay, one parameter group per layer.
"""
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    seed: int = 7
    designs: int = 20_000
    points: int = 96
    channels: tuple = (24, 48, 48, 48, 24)
    batch_size: int = 4
    epochs: int = 60
    lr: float = 4e-4
    decay: float = 1e-4
    layer_lr_factor: float = 0.95
    ema: float = 0.999
    report: int = 500
    ranges: dict = field(default_factory=lambda: {
        "mass": (0.5, 4.0), "k1": (0.5, 3.0), "k2": (0.5, 3.0), "c1": (0.02, 0.2),
        "c2": (0.02, 0.2), "ecc": (0.1, 1.0), "ratio": (0.2, 0.8), "load": (0.5, 2.0),
    })


def response_curves(cfg: Config):
    rng = np.random.default_rng(cfg.seed)
    p = {k: rng.uniform(lo, hi, (cfg.designs, 1)) for k, (lo, hi) in cfg.ranges.items()}
    w = np.linspace(0.1, 3.0, cfg.points)[None]
    a, b = p["ratio"], 1 - p["ratio"]

    def peak(m, k, c):
        return p["ecc"] * w**2 / np.sqrt((k - m * w**2) ** 2 + (c * w) ** 2 + 1e-3)

    amp = peak(a * p["mass"], p["k1"], p["c1"]) + peak(b * p["mass"], p["k2"] * p["load"], p["c2"])
    target = np.log1p(amp).astype(np.float32)
    cols = []
    for k, (lo, hi) in cfg.ranges.items():
        cols.append(2 * (p[k] - lo) / (hi - lo) - 1)
    x = np.concatenate(cols, axis=1).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(target)


class CurveNet(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        c0 = cfg.channels[0]
        self.points = cfg.points
        self.register_buffer("grid", torch.linspace(-1, 1, cfg.points)[None, None])
        self.lift = nn.Conv1d(len(cfg.ranges) + 1, c0, 1)
        layers = []
        for cin, cout in zip(cfg.channels[:-1], cfg.channels[1:]):
            layers += [nn.Conv1d(cin, cout, 7, padding=3), nn.GroupNorm(4, cout), nn.SiLU()]
            layers += [nn.Conv1d(cout, cout, 1), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.drop = nn.Conv1d(cfg.channels[-1], 1, 1)

    def forward(self, x):
        n = x.shape[0]
        h = x[:, :, None].expand(-1, -1, self.points)
        h = torch.cat([h, self.grid.expand(n, -1, -1)], dim=1)
        return self.drop(self.body(self.lift(h))).squeeze(1)


class Fitter:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        x, y = response_curves(cfg)
        self.mean, self.std = y.mean(), y.std()
        data = TensorDataset(x, (y - self.mean) / self.std)
        self.loader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True, drop_last=True)
        self.net = CurveNet(cfg)
        self.average = {k: v.detach().clone() for k, v in self.net.named_parameters()}
        self.opt = self.make_optimizer()
        self.step = 0

    def make_optimizer(self):
        modules = [m for m in self.net.modules() if next(m.parameters(recurse=False), None) is not None]
        groups = []
        for depth, m in enumerate(reversed(modules)):
            lr = self.cfg.lr * self.cfg.layer_lr_factor**depth
            groups.append({"params": list(m.parameters(recurse=False)), "lr": lr})
        return torch.optim.NAdam(groups, weight_decay=self.cfg.decay, decoupled_weight_decay=True)

    @torch.no_grad()
    def update_average(self):
        for k, v in self.net.named_parameters():
            self.average[k].lerp_(v, 1 - self.cfg.ema)

    def train_step(self, x, y):
        err = self.net(x) - y
        slope = err[:, 1:] - err[:, :-1]
        loss = err.square().mean() + 0.5 * slope.square().mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.opt.step()
        self.update_average()
        self.step += 1
        return loss.item()

    def fit(self):
        history = []
        for epoch in range(self.cfg.epochs):
            for x, y in self.loader:
                history.append(self.train_step(x, y))
                if self.step % self.cfg.report == 0:
                    recent = float(np.mean(history[-self.cfg.report:]))
                    print(f"epoch {epoch:2d} step {self.step:7d} loss {recent:.5f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    cfg = Config()
    fitter = Fitter(cfg)
    print(f"{sum(p.numel() for p in fitter.net.parameters())} weights, {len(fitter.loader)} batches per epoch")
    fitter.fit()
