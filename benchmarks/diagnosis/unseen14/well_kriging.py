"""Gaussian process regression of well logs: kernel parameters by maximum marginal likelihood."""
import argparse
import copy
import csv
import math
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

ROOT = os.path.join(tempfile.gettempdir(), "well_kriging")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wells", type=int, default=1000)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--noise", type=float, default=2e-6)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=50)
    return parser.parse_args()


def survey(opt):
    """Smooth porosity field over easting, northing and depth, with a fine measuring error."""
    os.makedirs(ROOT, exist_ok=True)
    path = os.path.join(ROOT, f"survey_{opt.wells}_{opt.held_out}.npz")
    if not os.path.exists(path):
        rng = np.random.default_rng(21)
        where = rng.uniform(0, 1, (opt.wells + opt.held_out, 3))
        waves = rng.normal(0, 1, (3, 40)) * np.array([[5.0], [4.0], [7.0]])
        phase = rng.uniform(0, 2 * math.pi, 40)
        field = np.cos(where @ waves + phase).mean(axis=1) * 4
        field += rng.normal(0, 0.001, len(field))
        np.savez(path + ".tmp.npz", where=where, field=field)
        os.replace(path + ".tmp.npz", path)
    with np.load(path) as data:
        where, field = torch.from_numpy(data["where"]), torch.from_numpy(data["field"])
    field = (field - field.mean()) / field.std()
    n = opt.wells
    return (where[:n], field[:n]), (where[n:], field[n:])


class SquaredExponential(nn.Module):
    """One length scale per coordinate."""

    def __init__(self, dims):
        super().__init__()
        self.raw_scale = nn.Parameter(torch.full((dims,), -0.5, dtype=torch.float64))
        self.raw_variance = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, a, b):
        scale = softplus(self.raw_scale)
        a, b = a / scale, b / scale
        square = (a * a).sum(1)[:, None] + (b * b).sum(1)
        return softplus(self.raw_variance) * torch.exp(torch.addmm(square, a, b.T, beta=-0.5, alpha=1.0))


class Kriging(nn.Module):
    def __init__(self, dims, noise):
        super().__init__()
        self.kernel = SquaredExponential(dims)
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise), dtype=torch.float64))
        self.mean = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def factor(self, x):
        covariance = self.kernel(x, x)
        covariance.diagonal().add_(self.log_noise.exp() + 1e-9)
        return torch.linalg.cholesky(covariance)

    def forward(self, x, y):
        """Negative log marginal likelihood per observation."""
        lower = self.factor(x)
        white = torch.linalg.solve_triangular(lower, (y - self.mean)[:, None], upper=False)
        logdet = 2 * lower.diagonal().log().sum()
        return 0.5 * (white.square().sum() + logdet + len(y) * math.log(2 * math.pi)) / len(y)

    @torch.no_grad()
    def predict(self, x, y, where):
        weights = torch.cholesky_solve((y - self.mean)[:, None], self.factor(x))
        return self.mean + (self.kernel(where, x) @ weights)[:, 0]


class History:
    def __init__(self, path):
        self.handle = open(path, "w", newline="")
        self.writer = csv.writer(self.handle)
        self.writer.writerow(["step", "nll", "grad_norm", "noise", "variance", "scale_e", "scale_n", "scale_d"])

    def write(self, step, loss, norm, model):
        self.writer.writerow([step, loss, norm, model.log_noise.exp().item(),
                              softplus(model.kernel.raw_variance).item(),
                              *softplus(model.kernel.raw_scale).tolist()])
        self.handle.flush()


def main():
    opt = options()
    torch.manual_seed(0)
    (x, y), (x_test, y_test) = survey(opt)
    model = Kriging(x.shape[1], opt.noise)
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    history = History(os.path.join(ROOT, "history.csv"))
    start = time.time()
    for step in range(1, opt.steps + 1):
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters()):
                kept.lerp_(new, 0.05)
        history.write(step, loss.item(), norm.item(), model)
        if step % 10 == 0:
            print(f"step {step:5d}  nll {loss.item():.4f}  grad {norm.item():.3f}  "
                  f"{step / (time.time() - start):.2f} steps/s", flush=True)
        if step % opt.eval_every == 0:
            rmse = (average.predict(x, y, x_test) - y_test).square().mean().sqrt()
            print(f"step {step:5d}  held-out rmse {rmse.item():.4f}", flush=True)
        if step % opt.save_every == 0:
            torch.save({"model": model.state_dict(), "average": average.state_dict()}, os.path.join(ROOT, "last.pt"))


if __name__ == "__main__":
    main()
