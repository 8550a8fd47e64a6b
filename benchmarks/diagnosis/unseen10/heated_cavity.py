# Physics-informed network for a differentially heated cavity -- the complete example in one file.
# Unknowns: u, v (velocity), p (pressure), T (temperature). Boussinesq, steady, unit square.
import os
import tempfile
import time

import torch
from torch import nn

Pr, Ra, Ec = 0.71, 1.0e3, 1.0e-3
N_INTERIOR = 1200
N_WALL = 40
FOLDER = os.path.join(tempfile.gettempdir(), "heated_cavity")


# ---------------------------------------------------------------- step 1: points
def make_points():
    os.makedirs(FOLDER, exist_ok=True)
    name = os.path.join(FOLDER, "points.pt")
    if os.path.exists(name):
        return torch.load(name)
    gen = torch.Generator().manual_seed(5)
    sobol = torch.quasirandom.SobolEngine(2, scramble=True, seed=5)
    inside = sobol.draw(200 * N_INTERIOR)
    s = torch.rand(200 * N_WALL, 1, generator=gen)
    zero, one = torch.zeros_like(s), torch.ones_like(s)
    points = {
        "inside": inside,
        "left": torch.cat([zero, s], 1),
        "right": torch.cat([one, s], 1),
        "floor": torch.cat([s, zero], 1),
        "roof": torch.cat([s, one], 1),
    }
    torch.save(points, name)
    return points


# ---------------------------------------------------------------- step 2: network
class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def make_net(width=96, depth=4):
    layers = [nn.Linear(2, width), Sine()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), Sine()]
    layers += [nn.Linear(width, 4)]
    net = nn.Sequential(*layers)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)
    return net


# ---------------------------------------------------------------- step 3: equations
def d(f, xy, axis):
    """df/dx (axis 0) or df/dy (axis 1) at every point."""
    g = torch.autograd.grad(f, xy, torch.ones_like(f), create_graph=True)[0]
    return g[:, axis:axis + 1]


def residuals(net, xy):
    xy = xy.clone().requires_grad_(True)
    u, v, p, T = net(xy).split(1, dim=1)

    # continuity
    r_mass = d(u, xy, 0) + d(v, xy, 1)
    # momentum
    r_u = u * d(u, xy, 0) + v * d(u, xy, 1) + d(p, xy, 0) \
        - Pr * (d(d(u, xy, 0), xy, 0) + d(d(u, xy, 1), xy, 1))
    r_v = u * d(v, xy, 0) + v * d(v, xy, 1) + d(p, xy, 1) \
        - Pr * (d(d(v, xy, 0), xy, 0) + d(d(v, xy, 1), xy, 1)) - Ra * Pr * T
    # energy, with viscous heating
    heating = 2 * d(u, xy, 0) ** 2 + 2 * d(v, xy, 1) ** 2 + (d(u, xy, 1) + d(v, xy, 0)) ** 2
    r_T = u * d(T, xy, 0) + v * d(T, xy, 1) - (d(d(T, xy, 0), xy, 0) + d(d(T, xy, 1), xy, 1)) - Ec * heating
    return r_mass, r_u / Ra, r_v / Ra, r_T


def wall_loss(net, walls):
    sizes = [len(w) for w in walls.values()]
    all_walls = torch.cat(list(walls.values()))
    all_walls.requires_grad_(True)
    out = net(all_walls)
    no_slip = out[:, :2].pow(2).mean()
    left, right, floor, roof = out[:, 3:].split(sizes)
    hot_cold = (left - 1).pow(2).mean() + right.pow(2).mean()
    # adiabatic floor and roof
    grad_T = torch.autograd.grad(out[:, 3].sum(), all_walls, create_graph=True)[0]
    _, _, gf, gr = grad_T.split(sizes)
    return no_slip + hot_cold + gf[:, 1].pow(2).mean() + gr[:, 1].pow(2).mean()


# ---------------------------------------------------------------- step 4: training
def main():
    torch.manual_seed(5)
    points = make_points()
    net = make_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40000)
    weights = dict(mass=1.0, u=1.0, v=1.0, T=1.0, wall=10.0)

    history = {k: [] for k in ("mass", "u", "v", "T", "wall", "total")}
    start = time.perf_counter()
    for step in range(40000):
        i = step % 200
        xy = points["inside"][i * N_INTERIOR:(i + 1) * N_INTERIOR]
        walls = {k: points[k][i * N_WALL:(i + 1) * N_WALL] for k in ("left", "right", "floor", "roof")}

        res = residuals(net, xy)
        terms = {k: r.pow(2).mean() for k, r in zip(("mass", "u", "v", "T"), res)}
        terms["wall"] = wall_loss(net, walls)
        loss = sum(weights[k] * t for k, t in terms.items())

        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        schedule.step()

        for k, t in terms.items():
            history[k].append(t.item())
        history["total"].append(loss.item())
        if step % 25 == 0:
            parts = "  ".join(f"{k} {history[k][-1]:.2e}" for k in terms)
            print(f"{step:6d}  loss {history['total'][-1]:.3e}  {parts}  [{time.perf_counter() - start:.0f}s]", flush=True)
        if step % 2000 == 1999:
            torch.save(net.state_dict(), os.path.join(FOLDER, "net.pt"))


if __name__ == "__main__":
    main()
