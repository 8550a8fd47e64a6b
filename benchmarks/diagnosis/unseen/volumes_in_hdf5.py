"""Slice-wise denoising of (simulated) tomographic volumes stored in one HDF5 file."""
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUBJECTS = 5
DEPTH = 80
SLICES_PER_BATCH = 8

SIDE = 128


def simulate(file_name: Path) -> None:
    rng = np.random.default_rng(303)
    with h5py.File(file_name, "w") as f:
        shape = (SUBJECTS, DEPTH, SIDE, SIDE)
        scans = f.create_dataset("scans", shape, "int16", chunks=(1, DEPTH, SIDE, SIDE), compression="gzip",
                                 compression_opts=1)
        for s in range(SUBJECTS):
            coarse = rng.normal(size=(DEPTH // 4, SIDE // 8, SIDE // 8))
            anatomy = ndimage.zoom(coarse, (4, 8, 8), order=1)
            scans[s] = (1000 + 300 * anatomy).astype(np.int16)


class Slices(Dataset):
    def __init__(self, file_name: Path):
        self.file_name = file_name
        self.scans = None

    def __len__(self) -> int:
        return SUBJECTS * DEPTH * 8

    def __getitem__(self, index: int):
        if self.scans is None:
            self.scans = h5py.File(self.file_name, "r")["scans"]
        subject, z = divmod(index // 8, DEPTH)
        clean = torch.from_numpy(self.scans[subject, z].astype(np.float32))
        top, left = torch.randint(0, SIDE - 64, (2,)).tolist()
        clean = (clean[top:top + 64, left:left + 64] - 1000).div_(300).unsqueeze(0)
        return clean + 0.5 * torch.randn_like(clean), clean


class Denoiser(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.down = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.mid = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, noisy):
        return noisy - self.up(self.mid(self.down(noisy)))


def psnr(mse: float) -> float:
    return 10 * np.log10(16 / mse)


if __name__ == "__main__":
    torch.manual_seed(303)
    store = Path(sys.argv[1]) / "scans.h5"
    simulate(store)
    loader = DataLoader(Slices(store), batch_size=SLICES_PER_BATCH, shuffle=True, num_workers=2,
                        persistent_workers=True)
    net = Denoiser()
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(400):
        errors = []
        for noisy, clean in loader:
            mse = (net(noisy) - clean).square().mean()
            optimiser.zero_grad()
            mse.backward()
            optimiser.step()
            errors.append(mse.item())
        print(f"epoch {epoch:03d}  PSNR {psnr(float(np.mean(errors))):.2f} dB", flush=True)
