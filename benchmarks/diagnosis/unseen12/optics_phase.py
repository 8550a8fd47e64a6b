"""Learned phase retrieval for a two-plane defocus camera.

A small complex-valued CNN predicts the object transmission from two intensity
images; the forward model (free-space propagation by the angular spectrum
method) closes the loop, so no ground-truth phase is needed for training.
"""
import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WAVELENGTH = 632.8e-9       # HeNe
PIXEL = 3.45e-6
DISTANCES = (1.5e-3, 3.0e-3)


def angular_spectrum(n, pixel, z, wavelength=WAVELENGTH):
    """Transfer function of free space for an n x n field sampled at `pixel`."""
    f = np.fft.fftfreq(n, d=pixel)
    fx, fy = np.meshgrid(f, f)
    arg = 1.0 / wavelength ** 2 - fx ** 2 - fy ** 2
    kz = 2 * np.pi * np.sqrt(np.maximum(arg, 0.0))
    h = np.exp(1j * kz * z)
    h[arg < 0] = 0
    # band limit, Matsushima & Shimobaba 2009
    df = 1.0 / (n * pixel)
    lim = 1.0 / (wavelength * np.sqrt((2 * df * z) ** 2 + 1))
    h[(np.abs(fx) > lim) | (np.abs(fy) > lim)] = 0
    return torch.from_numpy(h)


class Propagator(nn.Module):
    def __init__(self, n, pixel=PIXEL, distances=DISTANCES):
        super().__init__()
        self.register_buffer("H", torch.stack([angular_spectrum(n, pixel, z) for z in distances]))

    def forward(self, field):
        """(B, N, N) complex -> (B, Z, N, N) complex, one plane per distance."""
        spec = torch.fft.fft2(field)
        return torch.fft.ifft2(spec[:, None] * self.H)

    def back(self, planes):
        spec = torch.fft.fft2(planes)
        return torch.fft.ifft2((spec * self.H.conj())).mean(1)


def make_objects(path, n_obj=160, n=128, seed=3):
    """Cell-like phase blobs on a weakly absorbing background."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:n, 0:n] / n - 0.5
    phase = np.zeros((n_obj, n, n), np.float32)
    amp = np.ones((n_obj, n, n), np.float32)
    for i in range(n_obj):
        for _ in range(rng.integers(4, 10)):
            cx, cy = rng.uniform(-0.35, 0.35, 2)
            a, b = rng.uniform(0.03, 0.12, 2)
            th = rng.uniform(0, np.pi)
            u = (x - cx) * np.cos(th) + (y - cy) * np.sin(th)
            v = -(x - cx) * np.sin(th) + (y - cy) * np.cos(th)
            r = (u / a) ** 2 + (v / b) ** 2
            phase[i] += rng.uniform(0.4, 1.6) * np.sqrt(np.clip(1 - r, 0, None))
            amp[i] *= 1 - 0.15 * (r < 1)
    np.savez(path, phase=phase, amp=amp)


def load_measurements(path, prop, noise=0.01):
    z = np.load(path)
    obj = torch.polar(torch.from_numpy(z["amp"]), torch.from_numpy(z["phase"]))
    with torch.no_grad():
        inten = torch.cat([prop(o).abs().square() for o in obj.split(16)])
    inten = (inten + noise * torch.randn_like(inten)).clamp_min(0)
    return inten, torch.from_numpy(z["phase"])


class ComplexConv(nn.Module):
    """(a + ib) * (w + iv) with two real convolutions."""

    def __init__(self, cin, cout, k=3, dtype=None):
        super().__init__()
        kw = dict(padding=k // 2, bias=False, dtype=dtype)
        self.re = nn.Conv2d(cin, cout, k, **kw)
        self.im = nn.Conv2d(cin, cout, k, **kw)

    def forward(self, z):
        a, b = z.real, z.imag
        return torch.complex(self.re(a) - self.im(b), self.re(b) + self.im(a))


def mod_relu(z, bias):
    mag = z.abs()
    return z * (F.relu(mag + bias) / (mag + 1e-4))


class RefineNet(nn.Module):
    """One unrolled step: data-consistency gradient followed by a learned prior."""

    def __init__(self, width=12, dtype=None):
        super().__init__()
        self.c1 = ComplexConv(2, width, dtype=dtype)
        self.c2 = ComplexConv(width, width, dtype=dtype)
        self.c3 = ComplexConv(width, 1, k=1, dtype=dtype)
        self.bias = nn.Parameter(torch.full((width, 1, 1), -0.01, dtype=dtype))
        self.step = nn.Parameter(torch.tensor(0.5, dtype=dtype))

    def forward(self, field, grad):
        z = torch.stack([field, grad], dim=1)
        h = mod_relu(self.c2(self.c1(z)), self.bias)
        return field - self.step * grad + 0.1 * self.c3(h).squeeze(1)


class Unrolled(nn.Module):
    def __init__(self, prop, iters=5, width=12):
        super().__init__()
        self.prop = prop
        dtype = prop.H.real.dtype
        self.blocks = nn.ModuleList(RefineNet(width, dtype) for _ in range(iters))

    def forward(self, inten):
        amp = inten.clamp_min(1e-6).sqrt()
        field = self.prop.back(amp)
        for block in self.blocks:
            planes = self.prop(field)
            mag = planes.abs().clamp_min(1e-4)
            residual = planes - amp * planes / mag
            field = block(field, self.prop.back(residual))
        return field


def total_variation(field):
    dx = (field[:, :, 1:] - field[:, :, :-1]).abs()
    dy = (field[:, 1:, :] - field[:, :-1, :]).abs()
    return dx.mean() + dy.mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=64)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--iters", type=int, default=3)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--tv", type=float, default=0.02)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    cfg = p.parse_args()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)

    work = Path(tempfile.gettempdir()) / "optics_phase"
    work.mkdir(exist_ok=True)
    src = work / f"objects_{cfg.n}.npz"
    if not src.exists():
        make_objects(src, n=cfg.n)

    prop = Propagator(cfg.n)
    inten, phase = load_measurements(src, prop)
    n_val = 16
    train, val = inten[:-n_val], inten[-n_val:]
    net = Unrolled(prop, cfg.iters)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    print(f"{len(train)} holograms, {sum(q.numel() for q in net.parameters())} weights", flush=True)

    for epoch in range(cfg.epochs):
        tic, total = time.perf_counter(), 0.0
        order = torch.randperm(len(train))
        for idx in order.split(cfg.batch):
            batch = train[idx]
            field = net(batch)
            pred = prop(field).abs()
            loss = F.l1_loss(pred, batch.sqrt()) + cfg.tv * total_variation(field)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
        line = f"epoch {epoch:03d}  loss {total / len(train):.4f}  {time.perf_counter() - tic:.1f}s"
        if epoch % 10 == 9:
            with torch.no_grad():
                est = torch.cat([net(v).angle() for v in val.split(8)])
            ref = phase[-n_val:]
            err = (est - ref) - (est - ref).mean((1, 2), keepdim=True)
            line += f"  phase rmse {err.square().mean().sqrt():.3f} rad"
        print(line, flush=True)
    torch.save(net.state_dict(), work / "unrolled.pt")


if __name__ == "__main__":
    main()
