"""Each epoch makes a new list of what to draw, in balanced order."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

OBJECTS = 600_000
STEPS = 150
BATCH = 32


class Balanced(Sampler):
    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return STEPS * BATCH

    def __iter__(self):
        by_label = {}
        for index, label in enumerate(self.labels):
            by_label.setdefault(label, []).append(index)
        order = []
        for members in by_label.values():
            order += random.sample(members, len(self) // len(by_label) + 1)
        random.shuffle(order)
        return iter(order[: len(self)])


class Objects(Dataset):
    def __init__(self):
        self.rows = torch.rand(1000, 64)

    def __len__(self):
        return OBJECTS

    def __getitem__(self, index):
        return self.rows[index % 1000], index % 12


def main():
    data = Objects()
    labels = [index % 12 for index in range(OBJECTS)]
    loader = DataLoader(data, batch_size=BATCH, sampler=Balanced(labels), num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(500):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
