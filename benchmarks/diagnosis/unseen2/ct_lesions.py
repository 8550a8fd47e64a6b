"""Lesion segmentation in CT volumes with random 32^3 patches."""
import os

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

H5_FILE = "ct_volumes.h5"
N_VOLUMES = 24
SIDE = 128
PATCH = 32


def write_volumes(path):
    rng = np.random.default_rng(0)
    tmp = path + ".tmp"
    with h5py.File(tmp, "w") as f:
        kw = dict(chunks=(1, SIDE, SIDE, SIDE), compression="gzip", compression_opts=1, shuffle=True)
        ct = f.create_dataset("ct", (N_VOLUMES, SIDE, SIDE, SIDE), "int16", **kw)
        seg = f.create_dataset("seg", (N_VOLUMES, SIDE, SIDE, SIDE), "uint8", **kw)
        for i in range(N_VOLUMES):
            vol = (rng.standard_normal((SIDE, SIDE, SIDE), dtype=np.float32) * 20).astype(np.int16)
            mask = np.zeros(vol.shape, np.uint8)
            for _ in range(12):
                cz, cy, cx = rng.integers(10, SIDE - 10, 3)
                r = rng.integers(5, 14)
                lo = [max(c - r, 0) for c in (cz, cy, cx)]
                hi = [min(c + r + 1, SIDE) for c in (cz, cy, cx)]
                z, y, x = np.ogrid[lo[0]:hi[0], lo[1]:hi[1], lo[2]:hi[2]]
                ball = (z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2 < r * r
                mask[lo[0]:hi[0], lo[1]:hi[1], lo[2]:hi[2]][ball] = 1
            vol += 45 * mask.astype(np.int16)
            ct[i] = vol
            seg[i] = mask
    os.replace(tmp, path)


class PatchDataset(Dataset):
    def __init__(self, path, patches_per_epoch=8000):
        self.path = path
        self.patches_per_epoch = patches_per_epoch
        self.h5 = None

    def __len__(self):
        return self.patches_per_epoch

    def __getitem__(self, i):
        if self.h5 is None:      # one handle per worker
            self.h5 = h5py.File(self.path, "r")
            self.ct, self.seg = self.h5["ct"], self.h5["seg"]
        v = i % N_VOLUMES
        z, y, x = torch.randint(0, SIDE - PATCH + 1, (3,)).tolist()
        sl = (v, slice(z, z + PATCH), slice(y, y + PATCH), slice(x, x + PATCH))
        img = self.ct[sl].astype(np.float32) / 50
        return torch.from_numpy(img)[None], torch.from_numpy(self.seg[sl].astype(np.int64))


class SmallNet3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(inplace=True))
        self.down = nn.Sequential(nn.Conv3d(8, 16, 3, stride=2, padding=1), nn.BatchNorm3d(16), nn.ReLU(inplace=True))
        self.up = nn.ConvTranspose3d(16, 8, 2, stride=2)
        self.head = nn.Conv3d(16, 2, 1)

    def forward(self, x):
        a = self.enc(x)
        b = self.up(self.down(a))
        return self.head(torch.cat([a, b], dim=1))


def main():
    torch.manual_seed(0)
    if not os.path.exists(H5_FILE):
        write_volumes(H5_FILE)
    loader = DataLoader(PatchDataset(H5_FILE), batch_size=4, shuffle=True, drop_last=True,
                        num_workers=2, persistent_workers=True)
    net = SmallNet3d()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    weight = torch.tensor([0.2, 1.0])
    it = 0
    for epoch in range(50):
        for img, seg in loader:
            loss = F.cross_entropy(net(img), seg, weight=weight)
            opt.zero_grad()
            loss.backward()
            opt.step()
            it += 1
            if it % 25 == 0:
                print(f"epoch {epoch} it {it} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
