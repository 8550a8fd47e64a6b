"""Small records from far away, and a table of confusions that is counted by hand."""

import sys
import urllib.request

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16
CLASSES = 14


class Remote(Dataset):
    def __init__(self, root):
        self.root = root
        self.names = self.get("records.txt").decode().split()

    def get(self, name):
        if self.root.startswith("http"):
            return urllib.request.urlopen(f"{self.root}/{name}").read()
        with open(f"{self.root}/{name}", "rb") as file:
            return file.read()

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        values = np.frombuffer(self.get(self.names[index % len(self.names)]), dtype=np.float32)
        return torch.from_numpy(values[:1024].copy()), index % CLASSES


def count(table, guesses, labels):
    for row in range(CLASSES):
        for column in range(CLASSES):
            table[row][column] += sum(1 for g, y in zip(guesses, labels, strict=True) if (y, g) == (row, column))


def main():
    net = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    table = [[0] * CLASSES for _ in range(CLASSES)]
    for x, y in DataLoader(Remote(sys.argv[1]), batch_size=BATCH, shuffle=True):
        scores = net(x)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for _ in range(40):
            count(table, scores.argmax(1).tolist(), y.tolist())


if __name__ == "__main__":
    main()
