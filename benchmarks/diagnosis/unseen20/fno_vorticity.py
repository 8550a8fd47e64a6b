"""Fourier neural operator for two-dimensional decaying vorticity.

Learns the map w(t) -> w(t + dt) of the 2D Navier-Stokes equations on the torus and is
trained on short unrolled trajectories of a pseudo-spectral solver, stored in HDF5.
"""
import math
from dataclasses import dataclass

import h5py
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_grid: int = 48
    n_train: int = 160
    n_test: int = 16
    n_frames: int = 12
    viscosity: float = 1e-3
    dt_frame: float = 0.25
    modes: int = 10
    width: int = 24
    n_layers: int = 4
    unroll: int = 3
    batch_size: int = 8
    lr: float = 1e-3
    epochs: int = 60


def gaussian_random_field(n, size, alpha=2.5, tau=7.0):
    k = torch.fft.fftfreq(size, 1 / size)
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    spectrum = size * 30 * (4 * math.pi ** 2 * k2 + tau ** 2) ** (-alpha / 2)
    spectrum[0, 0] = 0
    return torch.fft.ifft2(torch.randn(n, size, size, dtype=torch.cfloat) * spectrum).real * size


def solve_vorticity(w0, cfg, substeps=15):
    """Pseudo-spectral solver, Crank-Nicolson for diffusion and Euler for advection."""
    n = cfg.n_grid
    k = 2 * math.pi * torch.fft.fftfreq(n, 1 / n)
    kx, ky = torch.meshgrid(k, k, indexing="ij")
    lap = kx ** 2 + ky ** 2
    inv_lap = torch.where(lap > 0, 1 / lap, 0.0)
    dealias = (kx.abs().maximum(ky.abs()) < 2 * math.pi * n / 3).float()
    dt = cfg.dt_frame / substeps
    a = 0.5 * dt * cfg.viscosity * lap
    w_hat, frames = torch.fft.fft2(w0), [w0]
    for _ in range(cfg.n_frames - 1):
        for _ in range(substeps):
            psi = w_hat * inv_lap
            u, v, wx, wy = (torch.fft.ifft2(1j * f).real for f in
                            (ky * psi, -kx * psi, kx * w_hat, ky * w_hat))
            adv = torch.fft.fft2(u * wx + v * wy) * dealias
            w_hat = ((1 - a) * w_hat - dt * adv) / (1 + a)
        frames.append(torch.fft.ifft2(w_hat).real)
    return torch.stack(frames, 1)


class VorticityDataset(Dataset):
    def __init__(self, path, split, unroll):
        self.file = h5py.File(path, "r")
        self.frames = self.file[split]["vorticity"]
        self.mean, self.std = self.file.attrs["mean"], self.file.attrs["std"]
        self.unroll = unroll
        self.per_traj = self.frames.shape[1] - unroll

    def __len__(self):
        return len(self.frames) * self.per_traj

    def __getitem__(self, i):
        traj, start = divmod(i, self.per_traj)
        window = self.frames[traj, start:start + self.unroll + 1]
        return torch.from_numpy((window - self.mean) / self.std).float()


class SpectralConv2d(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / width ** 2
        shape = (width, width, modes, modes)
        self.w1 = nn.Parameter(scale * torch.rand(shape, dtype=torch.cfloat))
        self.w2 = nn.Parameter(scale * torch.rand(shape, dtype=torch.cfloat))

    def forward(self, x):
        b, c, h, w = x.shape
        m = self.modes
        x_hat = torch.fft.rfft2(x)
        out = torch.zeros(b, c, h, w // 2 + 1, dtype=torch.cfloat)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", x_hat[:, :, :m, :m], self.w1)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", x_hat[:, :, -m:, :m], self.w2)
        return torch.fft.irfft2(out, s=(h, w))


class FNO2d(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.lift = nn.Linear(3, cfg.width)
        layers = range(cfg.n_layers)
        self.spectral = nn.ModuleList(SpectralConv2d(cfg.width, cfg.modes) for _ in layers)
        self.pointwise = nn.ModuleList(nn.Conv2d(cfg.width, cfg.width, 1) for _ in layers)
        self.project = nn.Sequential(nn.Linear(cfg.width, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, w):
        axis = torch.linspace(0, 1, w.shape[-1])
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
        x = torch.cat([w.unsqueeze(-1), grid.expand(len(w), -1, -1, -1)], dim=-1)
        x = self.lift(x).permute(0, 3, 1, 2)
        for spectral, pointwise in zip(self.spectral, self.pointwise):
            x = torch.nn.functional.gelu(spectral(x) + pointwise(x))
        return w + self.project(x.permute(0, 2, 3, 1)).squeeze(-1)


def relative_l2(pred, true):
    return ((pred - true).flatten(1).norm(dim=1) / true.flatten(1).norm(dim=1)).mean()


def rollout_loss(model, window):
    w, loss = window[:, 0], 0.0
    for t in range(1, window.shape[1]):
        w = model(w)
        loss = loss + relative_l2(w, window[:, t])
    return loss / (window.shape[1] - 1)


def main(cfg=Config()):
    torch.manual_seed(0)
    w = solve_vorticity(gaussian_random_field(cfg.n_train + cfg.n_test, cfg.n_grid), cfg)
    with h5py.File("vorticity.h5", "w") as f:
        f.create_dataset("train/vorticity", data=w[:cfg.n_train].numpy(), compression="gzip")
        f.create_dataset("test/vorticity", data=w[cfg.n_train:].numpy(), compression="gzip")
        f.attrs["mean"], f.attrs["std"] = w.mean().item(), w.std().item()

    train = VorticityDataset("vorticity.h5", "train", cfg.unroll)
    test = VorticityDataset("vorticity.h5", "test", cfg.n_frames - 1)
    train_loader = DataLoader(train, cfg.batch_size, shuffle=True)
    test_loader = DataLoader(test, cfg.batch_size)
    model = FNO2d(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    for epoch in range(cfg.epochs):
        total = 0.0
        for window in train_loader:
            optimizer.zero_grad()
            loss = rollout_loss(model, window)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        with torch.no_grad():
            error = sum(rollout_loss(model, x).item() for x in test_loader) / len(test_loader)
        print(f"{epoch} train {total / len(train_loader):.4f} test {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
