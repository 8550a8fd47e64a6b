"""A small model and data sets whose every sample draws from three random generators."""

import random

import numpy
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))

    def forward(self, points):
        return self.layers(points)


def augmented(index):
    point = torch.full((4,), float(index)) + torch.randn(4) * 0.1
    return point * random.uniform(0.5, 1.5) + float(numpy.random.rand())


class Points(Dataset):
    def __init__(self, length=24):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return augmented(index), torch.tensor([index / self.length])


class Stream(IterableDataset):
    def __init__(self, length=10):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.length, step):
            yield augmented(index), torch.tensor([index / self.length])


def seed():
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)


def loss_of(output, target):
    return nn.functional.mse_loss(output, target)


def train_step(model, optimizer, batch):
    points, targets = batch
    optimizer.zero_grad()
    loss = loss_of(model(points), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()
