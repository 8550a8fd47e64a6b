"""Neural surrogate for the 2-D wave equation in a heterogeneous medium (Fourier neural operator)."""
import logging
import math
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger("surrogate")

CFG = dict(
    grid=48, frames=24, simulations=96, substeps=6,
    history=2, width=16, modes=10, layers=3,
    batch_size=8, lr=1e-3, epochs=40, grad_clip=1.0, ema=0.995, seed=0,
    workdir=Path(tempfile.gettempdir()) / "wave_surrogate",
)


# --- simulation -------------------------------------------------------------------------------------------------
def smooth_field(rng, n, correlation):
    k = np.fft.fftfreq(n) * n
    spectrum = np.exp(-(k[:, None] ** 2 + k[None, :] ** 2) * correlation ** 2 / 2)
    field = np.fft.ifft2(np.fft.fft2(rng.standard_normal((n, n))) * spectrum).real
    return field / field.std()


def simulate(rng, cfg):
    """Leap-frog integration with periodic boundaries."""
    n, dt = cfg["grid"], 0.35
    speed = np.clip(1 + 0.25 * smooth_field(rng, n, 0.15), 0.4, 1.8)
    u = smooth_field(rng, n, 0.12)
    previous, frames = u.copy(), []
    for step in range(cfg["frames"] * cfg["substeps"]):
        laplacian = sum(np.roll(u, s, a) for s in (1, -1) for a in (0, 1)) - 4 * u
        previous, u = u, 2 * u - previous + (dt * speed) ** 2 * laplacian
        if step % cfg["substeps"] == 0:
            frames.append(u)
    return speed, np.stack(frames)


def generate(cfg):
    path = cfg["workdir"] / "waves.h5"
    if path.exists():
        return path
    cfg["workdir"].mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg["seed"])
    runs = [simulate(rng, cfg) for _ in range(cfg["simulations"])]
    with h5py.File(path.with_suffix(".tmp"), "w") as f:
        f["speed"] = np.stack([r[0] for r in runs])
        f["u"] = np.stack([r[1] for r in runs])
        f.attrs["dt"] = 0.35 * cfg["substeps"]
    path.with_suffix(".tmp").rename(path)
    return path


def load_pairs(path, cfg):
    """(speed, u_{t-1}, u_t) -> u_{t+1}, for training and held-out simulations."""
    with h5py.File(path) as f:
        speed, u = torch.from_numpy(f["speed"][:]), torch.from_numpy(f["u"][:])
    h, parts = cfg["history"], []
    for chunk in (slice(0, -8), slice(-8, None)):
        c, w = speed[chunk], u[chunk]
        inputs = [torch.cat([c[:, None], w[:, t - h:t]], 1) for t in range(h, w.shape[1])]
        targets = [w[:, t:t + 1] for t in range(h, w.shape[1])]
        parts.append(TensorDataset(torch.cat(inputs), torch.cat(targets)))
    return parts


# --- model ------------------------------------------------------------------------------------------------------
class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(2, width, width, modes, modes, 2) / width)

    def forward(self, x):
        m = self.modes
        spectrum = torch.fft.rfft2(x, norm="ortho")
        weight = torch.view_as_complex(self.weight)
        out = torch.zeros_like(spectrum)
        out[..., :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[..., :m, :m], weight[0])
        out[..., -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[..., -m:, :m], weight[1])
        return torch.fft.irfft2(out, s=x.shape[-2:], norm="ortho")


class FNO(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg["width"]
        self.lift = nn.Conv2d(cfg["history"] + 1 + 2, w, 1)
        self.spectral = nn.ModuleList(SpectralConv(w, cfg["modes"]) for _ in range(cfg["layers"]))
        self.local = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1, padding_mode="circular") for _ in range(cfg["layers"]))
        self.project = nn.Sequential(nn.Conv2d(w, 2 * w, 1), nn.GELU(), nn.Conv2d(2 * w, 1, 1))
        axis = torch.linspace(0, 2 * math.pi, cfg["grid"] + 1)[:-1]
        self.register_buffer("coordinates", torch.stack(torch.meshgrid(axis.sin(), axis.cos(), indexing="ij"))[None])

    def forward(self, x):
        last = x[:, -1:]
        x = self.lift(torch.cat([x, self.coordinates.expand(len(x), -1, -1, -1)], 1))
        for spectral, local in zip(self.spectral, self.local):
            x = x + nn.functional.gelu(spectral(x) + local(x))
        return last + self.project(x)


def relative_l2(prediction, target):
    return ((prediction - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)).mean()


# --- training ---------------------------------------------------------------------------------------------------
class Hooks:
    def __init__(self):
        self.registered = {}

    def on(self, event):
        return lambda function: self.registered.setdefault(event, []).append(function) or function

    def fire(self, event, trainer):
        for function in self.registered.get(event, []):
            function(trainer)


hooks = Hooks()


@hooks.on("step")
def update_average(trainer):
    trainer.average.update_parameters(trainer.model)


@hooks.on("step")
def report(trainer):
    if trainer.step % 20 == 0:
        logger.info("epoch %d step %d loss %.4f lr %.2e", trainer.epoch, trainer.step, trainer.loss,
                    trainer.scheduler.get_last_lr()[0])


@hooks.on("epoch")
def check_and_save(trainer):
    logger.info("epoch %d held-out relative error %.4f after %.0f s", trainer.epoch, trainer.evaluate(), time.time() - trainer.started)
    torch.save(trainer.average.module.state_dict(), trainer.cfg["workdir"] / "fno.pt")


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        train, held_out = load_pairs(generate(cfg), cfg)
        self.train_loader = DataLoader(train, cfg["batch_size"], shuffle=True, drop_last=True)
        self.test_loader = DataLoader(held_out, 32)
        self.model = FNO(cfg).double()
        self.average = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(cfg["ema"]))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg["lr"], weight_decay=1e-5)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, cfg["lr"], total_steps=cfg["epochs"] * len(self.train_loader))
        self.step, self.started = 0, time.time()

    @torch.no_grad()
    def evaluate(self):
        return float(np.mean([relative_l2(self.average(x), y).item() for x, y in self.test_loader]))

    def fit(self):
        for self.epoch in range(self.cfg["epochs"]):
            for inputs, targets in self.train_loader:
                loss = relative_l2(self.model(inputs), targets)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["grad_clip"])
                self.optimizer.step()
                self.scheduler.step()
                self.step, self.loss = self.step + 1, loss.item()
                hooks.fire("step", self)
            hooks.fire("epoch", self)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(CFG["seed"])
    Trainer(CFG).fit()
