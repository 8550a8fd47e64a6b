"""Recommendation with one dense table of item vectors."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ITEMS = 120_000
SIZE = 32
BATCH = 16


class Pairs(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return (index * 7919) % ITEMS, (index * 104_729) % ITEMS, float(index % 2)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Embedding(ITEMS, SIZE)
        self.right = nn.Embedding(ITEMS, SIZE)

    def forward(self, a, b):
        return (self.left(a) * self.right(b)).sum(1)


def main():
    model = TwoTowers()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    loader = DataLoader(Pairs(), batch_size=BATCH, shuffle=True, num_workers=1)
    for a, b, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(a, b), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
