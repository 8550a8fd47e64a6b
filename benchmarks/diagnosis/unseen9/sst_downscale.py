# Super-resolution of sea surface temperature anomalies, experiments for chapter 4.
# usage: python sst_downscale.py
import os
import tempfile

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader, Dataset

WORKDIR = os.path.join(tempfile.gettempdir(), "sst_downscale")
H5 = os.path.join(WORKDIR, "anomalies.h5")
N_DAYS = 2400
NX = 96
FACTOR = 4
BATCH = 16
EPOCHS = 300
LR = 4e-4


def make_h5():
    if os.path.exists(H5):
        return
    os.makedirs(WORKDIR, exist_ok=True)
    rng = np.random.default_rng(42)
    # a slowly moving pool of large-scale modes plus day-to-day eddies
    modes = np.stack([gaussian_filter(rng.normal(size=(NX, NX)), s, mode="wrap") * s
                      for s in (4, 4, 6, 6, 8, 8, 12, 12)]).astype(np.float32)
    coef = np.cumsum(rng.normal(0, 0.1, (N_DAYS, len(modes))), axis=0).astype(np.float32)
    coef = coef / (1 + np.abs(coef) * 0.3)
    tmp = H5 + ".tmp"
    with h5py.File(tmp, "w") as f:
        d = f.create_dataset("sst", shape=(N_DAYS, NX, NX), dtype="f4", chunks=(48, NX, NX),
                             compression="gzip", compression_opts=4)
        block = 240
        for s in range(0, N_DAYS, block):
            eddies = rng.normal(size=(block, NX, NX)).astype(np.float32)
            eddies = gaussian_filter(eddies, (0, 1.5, 1.5), mode="wrap") * 1.5
            x = np.tensordot(coef[s:s + block], modes, axes=1) + eddies
            d[s:s + block] = np.round(x, 2)
        f.create_dataset("dayofyear", data=(np.arange(N_DAYS) % 365).astype(np.int16))
        d.attrs["units"] = "K"
    os.rename(tmp, H5)


class SST(Dataset):
    def __init__(self, fname, days):
        self.fname = fname
        self.days = days
        self.h5 = None
        with h5py.File(fname, "r") as f:
            self.scale = float(f["sst"][:200].std())

    def __len__(self):
        return len(self.days)

    def open(self):
        # handles do not survive a fork, so every process opens its own
        self.h5 = h5py.File(self.fname, "r")
        self.sst = self.h5["sst"]
        self.doy = self.h5["dayofyear"][:]

    def __getitem__(self, i):
        if self.h5 is None:
            self.open()
        t = int(self.days[i])
        hi = self.sst[t] / self.scale
        phase = 2 * np.pi * self.doy[t] / 365.0
        hi = torch.from_numpy(hi)[None]
        season = torch.tensor([np.sin(phase), np.cos(phase)], dtype=torch.float32)
        return hi, season


class ResidualBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1, padding_mode="circular")
        self.b = nn.Conv2d(c, c, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class Downscaler(nn.Module):
    def __init__(self, c=32, depth=4):
        super().__init__()
        self.inp = nn.Conv2d(3, c, 3, padding=1, padding_mode="circular")
        self.body = nn.Sequential(*[ResidualBlock(c) for _ in range(depth)])
        self.out = nn.Conv2d(c, FACTOR ** 2, 3, padding=1, padding_mode="circular")
        self.shuffle = nn.PixelShuffle(FACTOR)

    def forward(self, lo, season):
        s = season[:, :, None, None].expand(-1, -1, lo.shape[2], lo.shape[3])
        h = F.relu(self.inp(torch.cat([lo, s], 1)))
        h = self.body(h)
        up = F.interpolate(lo, scale_factor=FACTOR, mode="bicubic", align_corners=False)
        return up + self.shuffle(self.out(h))


def gradient_loss(p, t):
    gx = (p[..., 1:] - p[..., :-1]) - (t[..., 1:] - t[..., :-1])
    gy = (p[..., 1:, :] - p[..., :-1, :]) - (t[..., 1:, :] - t[..., :-1, :])
    return gx.abs().mean() + gy.abs().mean()


def main():
    torch.manual_seed(3)
    np.random.seed(3)
    make_h5()
    days = np.random.permutation(N_DAYS)[:2000]
    ds = SST(H5, days)
    dl = DataLoader(ds, BATCH, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4, drop_last=True)
    net = Downscaler()
    opt = torch.optim.Adam(net.parameters(), lr=LR)
    it = 0
    run = None
    for ep in range(EPOCHS):
        for hi, season in dl:
            lo = F.avg_pool2d(hi, FACTOR)
            pred = net(lo, season)
            l2 = F.mse_loss(pred, hi)
            loss = l2 + 0.1 * gradient_loss(pred, hi)
            opt.zero_grad()
            loss.backward()
            opt.step()
            it += 1
            run = loss.item() if run is None else 0.98 * run + 0.02 * loss.item()
            if it % 40 == 0:
                print("ep %d it %d loss %.5f (mse %.5f)" % (ep, it, run, l2.item()), flush=True)
        torch.save({"net": net.state_dict(), "ep": ep}, os.path.join(WORKDIR, "last.pt"))


if __name__ == "__main__":
    main()
