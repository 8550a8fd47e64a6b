"""Physics-informed network for the viscous Burgers equation, u_t + u u_x = nu u_xx, u(0, x) = -sin(pi x)."""
import time
from dataclasses import dataclass

import torch
from torch import nn

POINTS = 512
WIDTH = 32
DEPTH = 6


@dataclass
class Config:
    nu: float = 0.01 / 3.141592653589793
    lr: float = 1e-3
    epochs: int = 100_000
    steps_per_epoch: int = 20
    boundary: int = 100
    report_every: int = 5


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [2] + [WIDTH] * DEPTH + [1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))

    def forward(self, t, x):
        z = torch.stack([t, x], -1)
        for layer in self.layers[:-1]:
            z = torch.tanh(layer(z))
        return self.layers[-1](z).squeeze(-1)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


class Burgers:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = Field()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, fused=True)

    def losses(self):
        t = torch.rand(POINTS, requires_grad=True)
        x = (torch.rand(POINTS) * 2 - 1).requires_grad_()
        u = self.net(t, x)
        u_x = derivative(u, x)
        residual = derivative(u, t) + u * u_x - self.cfg.nu * derivative(u_x, x)
        n = self.cfg.boundary
        x0 = torch.rand(n) * 2 - 1
        start = self.net(torch.zeros(n), x0) + torch.sin(torch.pi * x0)
        walls = self.net(torch.rand(n), torch.randint(0, 2, (n,)) * 2.0 - 1)
        return residual.square().mean(), start.square().mean() + walls.square().mean()

    def epoch(self):
        total = torch.zeros(2)
        for _ in range(self.cfg.steps_per_epoch):
            inner, border = self.losses()
            self.opt.zero_grad()
            (inner + border).backward()
            self.opt.step()
            total += torch.stack([inner, border]).detach()
        return (total / self.cfg.steps_per_epoch).tolist()


def fit(cfg):
    problem = Burgers(cfg)
    began = time.time()
    for epoch in range(cfg.epochs):
        with torch.autograd.profiler.profile(record_shapes=True) as prof:
            inner, border = problem.epoch()
        if epoch % cfg.report_every == 0:
            print(f"epoch {epoch:5d} | residual {inner:.3e} | border {border:.3e} | {time.time() - began:.0f} s", flush=True)
    print(prof.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=20))


if __name__ == "__main__":
    torch.manual_seed(42)
    fit(Config())
