"""A fast device and one loader process, as in the example that the script grew from."""

import time

import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 480
BATCH = 8
STEP_MS = 70


class Cells(Dataset):
    def __init__(self):
        self.slides = np.random.default_rng(2).random((20, SIDE, SIDE)).astype(np.float32)

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        slide = ndimage.rotate(self.slides[index % 20], angle=index % 90, reshape=False, order=3)
        return torch.from_numpy(ndimage.gaussian_filter(slide, 1.5)).unsqueeze(0), index % 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        time.sleep(STEP_MS / 1000)  # the device
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 8).flatten(1))


def train(model, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    model = Net()
    cells = DataLoader(Cells(), batch_size=BATCH, shuffle=True, num_workers=1)
    train(model, cells, torch.optim.SGD(model.parameters(), lr=0.1))
