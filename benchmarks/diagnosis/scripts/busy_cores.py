"""Every core is busy with augmentation already."""

import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS = 2
SIDE = 192
BATCH = 8


class Elastic(Dataset):
    def __init__(self):
        self.images = np.random.default_rng(3).random((16, SIDE, SIDE)).astype(np.float32)

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        draw = np.random.default_rng(index)
        shift = [ndimage.gaussian_filter(draw.standard_normal((SIDE, SIDE)), 6) * 40 for _ in range(2)]
        grid = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
        places = [axis + moved for axis, moved in zip(grid, shift, strict=True)]
        warped = ndimage.map_coordinates(self.images[index % 16], places, order=1, mode="reflect")
        return torch.from_numpy(warped.astype(np.float32)).unsqueeze(0), index % 4


def main():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 4)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for x, y in DataLoader(Elastic(), batch_size=BATCH, shuffle=True, num_workers=WORKERS):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
