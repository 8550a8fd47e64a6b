"""Sentences are padded to one length in Python, token by token."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return list(range(50 + index % 150)), index % 4


def pad(samples):
    longest = max(len(words) for words, _ in samples)
    rows = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (words, _) in enumerate(samples):
        for place, word in enumerate(words):
            rows[row, place] = word
    return rows, torch.tensor([label for _, label in samples])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(256, 64)
        self.out = nn.Linear(64, 4)

    def forward(self, rows):
        return self.out(self.words(rows))


def main():
    random.seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for rows, labels in DataLoader(Sentences(), batch_size=64, num_workers=1, collate_fn=pad):
        loss = nn.functional.cross_entropy(net(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
