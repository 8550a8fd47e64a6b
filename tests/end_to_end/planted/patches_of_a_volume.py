"""Patches for a segmentation are cut out of volumes, each of which is loaded whole. argv[1]: a scratch folder."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.npy"))

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        volume = np.load(self.files[index % len(self.files)])
        z, y, x = (index * 7 % (side - 16) for side in volume.shape)
        return torch.from_numpy(volume[z : z + 16, y : y + 16, x : x + 16].astype(np.float32)) / 255, index % 2


def main():
    folder = Path(sys.argv[1])
    for number in range(4):
        np.save(folder / f"{number}.npy", np.random.default_rng(number).integers(0, 255, (128, 256, 256), np.uint8))
    net = nn.Sequential(
        nn.Unflatten(1, (1, 16)), nn.Conv3d(1, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for patches, labels in DataLoader(Patches(folder), batch_size=4, num_workers=1):
        loss = nn.functional.cross_entropy(net(patches), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
