"""Patches are cut out of volumes. argv[1]: a scratch folder; argv[2]: the fault.

``whole``: the volumes are npz files, each unpacked whole. ``turned``: they are memory maps, but each patch is turned by
splines.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset

EDGE = 32


class Patches(Dataset):
    def __init__(self, folder, how):
        self.packed, self.plain = sorted(folder.glob("*.npz")), sorted(folder.glob("*.npy"))
        self.how = how

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.how == "whole":
            volume = np.load(self.packed[index % 2])["image"]
        else:
            volume = np.load(self.plain[index % 2], mmap_mode="r")
        z, y, x = (index * 7 % (side - EDGE) for side in volume.shape)
        patch = np.asarray(volume[z : z + EDGE, y : y + EDGE, x : x + EDGE], np.float32)
        if self.how == "turned":
            patch = ndimage.rotate(patch, index % 40 - 20, (1, 2), reshape=False, order=3)
            patch = ndimage.gaussian_filter(patch, 1.0)
        return torch.from_numpy(patch)[None] / 255, index % 2


def main():
    folder, how = Path(sys.argv[1]), sys.argv[2]
    for number in range(2):
        smooth = np.random.default_rng(number).integers(0, 40, (128, 160, 160), np.uint8)
        np.savez_compressed(folder / f"{number}.npz", image=smooth)
        np.save(folder / f"{number}.npy", smooth)
    net = nn.Sequential(nn.AvgPool3d(4), nn.Conv3d(1, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    # Turned by as many workers as cores, so that the answer does not depend on what a further one would give.
    workers = 2 if how == "turned" else 1
    for patches, labels in DataLoader(Patches(folder, how), batch_size=2, num_workers=workers):
        loss = nn.functional.cross_entropy(net(patches), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
