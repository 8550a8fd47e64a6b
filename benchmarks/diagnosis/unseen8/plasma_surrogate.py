"""
Surrogate of a tokamak transport code: 24 plasma state inputs -> 32-point flux profile.

A very deep and narrow residual MLP; depth turned out to matter more than width.
Gradient health was a problem in earlier versions, so every tensor is tracked.
"""
import math
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

CACHE = pathlib.Path(tempfile.gettempdir()) / "plasma_surrogate"

config = dict(
    n_samples=60_000,
    n_inputs=24,
    n_radial=32,
    width=48,
    depth=56,
    batch=384,
    lr=6e-4,
    warmup=300,
    epochs=120,
    seed=17,
)


def transport_code(params, n_radial):
    """Stand-in for the expensive simulator: critical-gradient fluxes with stiff thresholds."""
    rho = np.linspace(0.02, 0.98, n_radial)[None]
    g = params[:, :8] @ np.vstack([rho ** k for k in range(8)]) * 1.5 + 2.0
    shear = params[:, 8:12] @ np.vstack([np.cos(k * np.pi * rho) for k in range(1, 5)])
    crit = 1.6 + 0.5 * shear + 0.3 * params[:, 12:13] * rho
    stiff = 1.0 + 0.5 * np.tanh(params[:, 13:14])
    flux = stiff * np.maximum(g - crit, 0) ** 1.5
    collisional = np.exp(0.4 * params[:, 14:15]) * rho * (1 - rho)
    island = 0.8 * np.exp(-((rho - 0.5 - 0.15 * params[:, 15:16]) / 0.08) ** 2) * (params[:, 16:17] > 0)
    return flux + collisional + island


def load_database():
    CACHE.mkdir(exist_ok=True, parents=True)
    file = CACHE / "database.npz"
    if not file.exists():
        rng = np.random.default_rng(config["seed"])
        x = rng.normal(0, 1, (config["n_samples"], config["n_inputs"]))
        y = transport_code(x, config["n_radial"]) + rng.normal(0, 0.01, (config["n_samples"], config["n_radial"]))
        np.savez(file, x=x.astype(np.float32), y=y.astype(np.float32))
    z = np.load(file)
    y = np.log1p(np.maximum(z["y"], 0))
    return torch.from_numpy(z["x"]), torch.from_numpy((y - y.mean(0)) / y.std(0))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, h):
        return h + self.gate * self.down(torch.nn.functional.silu(self.up(self.norm(h))))


class Surrogate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.stem = nn.Linear(c["n_inputs"], c["width"])
        self.body = nn.Sequential(*[Residual(c["width"]) for _ in range(c["depth"])])
        self.head = nn.Sequential(nn.LayerNorm(c["width"]), nn.Linear(c["width"], c["n_radial"]))

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


class TensorHealth:
    """Running statistics of each weight tensor and of its gradient."""

    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.params = dict(model.named_parameters())
        self.ema = {name: {} for name in self.params}
        self.previous = {}

    def _put(self, name, key, value):
        slot = self.ema[name]
        slot[key] = value if key not in slot else self.decay * slot[key] + (1 - self.decay) * value

    @torch.no_grad()
    def observe(self):
        for name, p in self.params.items():
            g = p.grad
            norm = g.norm().item()
            weight = p.norm().item()
            self._put(name, "grad_norm", norm)
            self._put(name, "ratio", norm / (weight + 1e-12))
            self._put(name, "grad_max", g.abs().max().item())
            self._put(name, "grad_std", g.std().item())
            self._put(name, "grad_p90", torch.quantile(g.abs().flatten(), 0.9).item())
            self._put(name, "dead", (g == 0).float().mean().item())
            self._put(name, "tail", ((g ** 4).mean() / (g.pow(2).mean() ** 2 + 1e-20)).item())
            if name in self.previous:
                self._put(name, "flips", (torch.sign(g) != torch.sign(self.previous[name])).float().mean().item())
                cos = torch.dot(g.flatten(), self.previous[name].flatten()).item()
                self._put(name, "agreement", cos / (norm * self.previous[name].norm().item() + 1e-12))
            self.previous[name] = g.clone()

    def report(self):
        worst = sorted(self.ema.items(), key=lambda kv: kv[1].get("ratio", 0.0))
        for name, slot in worst[:2] + worst[-2:]:
            print(f"    {name:24s} " + "  ".join(f"{k} {v:.2e}" for k, v in slot.items()))


def lr_factor(step):
    if step < config["warmup"]:
        return (step + 1) / config["warmup"]
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - config["warmup"]) / 14_000)))


def train():
    torch.manual_seed(config["seed"])
    x, y = load_database()
    print("database", tuple(x.shape), "->", tuple(y.shape))
    data = TensorDataset(x, y)
    sampler = BatchSampler(RandomSampler(data), config["batch"], drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    net = Surrogate(config)
    print("tensors:", len(list(net.parameters())), "weights:", sum(p.numel() for p in net.parameters()))
    opt = torch.optim.AdamW(net.parameters(), lr=config["lr"], weight_decay=0.01, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
    health = TensorHealth(net)
    step, smooth = 0, None
    for epoch in range(config["epochs"]):
        began = time.time()
        for xb, yb in loader:
            loss = nn.functional.smooth_l1_loss(net(xb), yb)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            total = nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
            health.observe()
            opt.step()
            sched.step()
            smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
            step += 1
            if step % 25 == 0:
                print(f"{step:6d} | loss {smooth:.4f} | grad {total:.3f} | lr {sched.get_last_lr()[0]:.1e}", flush=True)
        print(f"epoch {epoch} ({time.time() - began:.1f} s)")
        health.report()


if __name__ == "__main__":
    train()
