"""Pictures are blurred in the training process itself, because num_workers was left at its default of 0."""

import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self):
        self.pictures = np.random.default_rng(0).random((64, 3, 128, 128), dtype=np.float32)

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.from_numpy(ndimage.gaussian_filter(self.pictures[index % 64], (0, 4, 4))), index % 10


def main():
    net = nn.Sequential(nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 63 * 63, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for pictures, labels in DataLoader(Pictures(), batch_size=8):
        loss = nn.functional.cross_entropy(net(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
