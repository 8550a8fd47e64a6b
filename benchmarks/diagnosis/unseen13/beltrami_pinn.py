"""NSFnet (Jin, Cai, Li & Karniadakis 2020), velocity-pressure form, on the 3D Beltrami flow
of Ethier & Steinman (1994). Re = 1, cube [-1, 1]^3, t in [0, 1].

    u_t + (u . grad) u = -grad p + lap(u) / Re,     div u = 0
"""
from dataclasses import dataclass
from pathlib import Path
import tempfile
import time

import torch
from torch import nn, Tensor
from torch.autograd import grad


@dataclass
class Config:
    reynolds: float = 1.0
    width: int = 50
    depth: int = 4
    n_interior: int = 400
    n_boundary: int = 200
    n_initial: int = 200
    alpha: float = 10.0
    beta: float = 10.0
    lr: float = 1e-3
    steps: int = 3000
    report_every: int = 25
    seed: int = 42


X, Y, Z, T = 0, 1, 2, 3


def beltrami(q: Tensor, a: float = 1.0, d: float = 1.0) -> Tensor:
    """Exact solution (u, v, w, p) at the points q = (x, y, z, t)."""
    x, y, z, t = q.unbind(1)
    e, s, c = torch.exp, torch.sin, torch.cos
    decay = e(-d * d * t)
    u = -a * (e(a * x) * s(a * y + d * z) + e(a * z) * c(a * x + d * y)) * decay
    v = -a * (e(a * y) * s(a * z + d * x) + e(a * x) * c(a * y + d * z)) * decay
    w = -a * (e(a * z) * s(a * x + d * y) + e(a * y) * c(a * z + d * x)) * decay
    p = -a * a / 2 * (
        e(2 * a * x) + e(2 * a * y) + e(2 * a * z)
        + 2 * s(a * x + d * y) * c(a * z + d * x) * e(a * (y + z))
        + 2 * s(a * y + d * z) * c(a * x + d * y) * e(a * (z + x))
        + 2 * s(a * z + d * x) * c(a * y + d * z) * e(a * (x + y))
    ) * decay ** 2
    return torch.stack([u, v, w, p], dim=1)


def test_points(n: int = 2000) -> tuple[Tensor, Tensor]:
    path = Path(tempfile.gettempdir()) / "beltrami_pinn" / "test.pt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        q = interior_points(n)
        torch.save({"q": q, "exact": beltrami(q)}, path)
    stored = torch.load(path)
    return stored["q"], stored["exact"]


def interior_points(n: int) -> Tensor:
    return torch.cat([2 * torch.rand(n, 3) - 1, torch.rand(n, 1)], dim=1)


def boundary_points(n: int) -> Tensor:
    q = interior_points(n)
    axis = torch.randint(3, (n,))
    q[torch.arange(n), axis] = torch.randint(2, (n,)).float() * 2 - 1
    return q


def initial_points(n: int) -> Tensor:
    q = interior_points(n)
    q[:, T] = 0
    return q


class NSFnet(nn.Module):
    """(x, y, z, t) -> (u, v, w, p)"""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(4, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        layers.append(nn.Linear(width, 4))
        self.net = nn.Sequential(*layers)
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, q: Tensor) -> Tensor:
        return self.net(q)


def d(f: Tensor, q: Tensor, axis: int) -> Tensor:
    """Partial derivative of f with respect to coordinate `axis`."""
    return grad(f.sum(), q, create_graph=True)[0][:, axis]


def laplacian(f: Tensor, q: Tensor) -> Tensor:
    return sum(d(d(f, q, axis), q, axis) for axis in (X, Y, Z))


def residuals(model: NSFnet, q: Tensor, re: float) -> tuple[Tensor, ...]:
    q.requires_grad_(True)
    u, v, w, p = model(q).unbind(1)

    def momentum(f: Tensor, axis: int) -> Tensor:
        transport = d(f, q, T) + u * d(f, q, X) + v * d(f, q, Y) + w * d(f, q, Z)
        return transport + d(p, q, axis) - laplacian(f, q) / re

    continuity = d(u, q, X) + d(v, q, Y) + d(w, q, Z)
    return momentum(u, X), momentum(v, Y), momentum(w, Z), continuity


def main(cfg: Config) -> None:
    torch.manual_seed(cfg.seed)
    q_test, exact = test_points()
    model = NSFnet(cfg.width, cfg.depth)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)
    start = time.perf_counter()

    for step in range(1, cfg.steps + 1):
        loss_pde = sum(r.square().mean() for r in residuals(model, interior_points(cfg.n_interior), cfg.reynolds))
        qb, q0 = boundary_points(cfg.n_boundary), initial_points(cfg.n_initial)
        loss_b = (model(qb) - beltrami(qb))[:, :3].square().mean()
        loss_0 = (model(q0) - beltrami(q0))[:, :3].square().mean()
        loss = loss_pde + cfg.alpha * loss_b + cfg.beta * loss_0

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()

        if step % cfg.report_every == 0:
            with torch.no_grad():
                err = (model(q_test) - exact)[:, :3].norm() / exact[:, :3].norm()
            print(f"{step:6d}  pde {loss_pde.item():.3e}  bc {loss_b.item():.3e}  ic {loss_0.item():.3e}  "
                  f"rel. L2 {err.item():.4f}  {time.perf_counter() - start:7.1f} s", flush=True)


if __name__ == "__main__":
    main(Config())
