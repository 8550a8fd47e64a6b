"""Forecast tomorrow's sea-surface temperature anomaly in small patches.

The "reanalysis" is written once to an HDF5 file in a scratch directory and
then sampled at random places and days.
"""
import os
import shutil
import tempfile
import time
from types import SimpleNamespace

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

hp = SimpleNamespace(
    days=480, lat=128, lon=160,
    history=6, patch=32,
    batch=16, samples_per_epoch=1600, epochs=50,
    channels=48, lr=1e-3, workers=1,
)


def smooth_noise(rng, shape, cutoff):
    """Gaussian random field with a soft spectral cut-off."""
    spec = np.fft.rfft2(rng.standard_normal(shape))
    ky = np.fft.fftfreq(shape[0])[:, None]
    kx = np.fft.rfftfreq(shape[1])[None]
    spec *= np.exp(-(kx ** 2 + ky ** 2) / cutoff ** 2)
    f = np.fft.irfft2(spec, shape)
    return f / f.std()


def write_reanalysis(path, seed=0):
    rng = np.random.default_rng(seed)
    shape = (hp.lat, hp.lon)
    state = smooth_noise(rng, shape, 0.04)
    mean = 12 + 10 * np.cos(np.linspace(-1.3, 1.3, hp.lat))[:, None] + smooth_noise(rng, shape, 0.02)
    with h5py.File(path, "w") as f:
        sst = f.create_dataset(
            "sst", (hp.days, hp.lat, hp.lon), "f4",
            chunks=(96, 64, 80), compression="gzip", compression_opts=4, shuffle=True,
        )
        buf = []
        for day in range(hp.days):
            # drift eastwards, forget a little, add weather
            state = 0.97 * np.roll(state, 1, axis=1) + 0.24 * smooth_noise(rng, shape, 0.06)
            season = 3 * np.sin(2 * np.pi * day / 365.25)
            buf.append(np.round(mean + season + state, 2).astype("f4"))
            if len(buf) == 96:
                sst[day - 95:day + 1] = np.stack(buf)
                buf = []
        f.create_dataset("mean", data=mean.astype("f4"))
        f["sst"].attrs["units"] = "degC"


class SSTPatches(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None

    def __len__(self):
        return hp.samples_per_epoch

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        rng = np.random.default_rng(np.random.SeedSequence([i, int(torch.initial_seed() % 2 ** 31)]))
        t = int(rng.integers(0, hp.days - hp.history - 1))
        y = int(rng.integers(0, hp.lat - hp.patch))
        x = int(rng.integers(0, hp.lon - hp.patch))
        block = self.file["sst"][t:t + hp.history + 1, y:y + hp.patch, x:x + hp.patch]
        block = torch.from_numpy(block)
        mean = block[:-1].mean()
        block = (block - mean) / 2.0
        return block[:-1], block[-1:]


class ResNetForecaster(nn.Module):
    def __init__(self, history, c):
        super().__init__()
        self.stem = nn.Conv2d(history, c, 5, padding=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, c), nn.GELU(), nn.Conv2d(c, c, 3, padding=d, dilation=d))
            for d in (1, 2, 4, 1)
        )
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        h = self.stem(x)
        for b in self.blocks:
            h = h + b(h)
        return x[:, -1:] + self.out(h)


def main():
    torch.manual_seed(0)
    scratch = tempfile.mkdtemp(prefix="sst_")
    try:
        path = os.path.join(scratch, "reanalysis.h5")
        t0 = time.time()
        write_reanalysis(path)
        print(f"wrote {os.path.getsize(path) / 1e6:.0f} MB in {time.time() - t0:.1f} s")
        loader = DataLoader(SSTPatches(path), batch_size=hp.batch, num_workers=hp.workers,
                            persistent_workers=True)
        net = ResNetForecaster(hp.history, hp.channels)
        opt = torch.optim.AdamW(net.parameters(), lr=hp.lr)
        n, t0 = 0, time.time()
        for epoch in range(hp.epochs):
            for past, future in loader:
                pred = net(past)
                loss = F.smooth_l1_loss(pred, future)
                opt.zero_grad()
                loss.backward()
                opt.step()
                n += 1
                if n % 10 == 0:
                    base = F.smooth_l1_loss(past[:, -1:], future).item()
                    print(f"epoch {epoch} batch {n} loss {loss.item():.4f} (persistence {base:.4f}) "
                          f"{n / (time.time() - t0):.2f} batches/s", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
