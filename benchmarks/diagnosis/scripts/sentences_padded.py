"""Token sequences of different lengths, padded in the loader's collate function."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LONGEST = 700
BATCH = 48
VOCABULARY = 5000


class Sentences(Dataset):
    def __init__(self, seed=0):
        draw = random.Random(seed)
        self.lines = [
            [draw.randrange(1, VOCABULARY) for _ in range(draw.randint(LONGEST // 3, LONGEST))] for _ in range(300)
        ]

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.lines[index % len(self.lines)]


def pad(lines):
    longest = max(len(line) for line in lines)
    batch = torch.zeros(len(lines), longest, dtype=torch.long)
    for row, line in enumerate(lines):
        for column, token in enumerate(line):
            batch[row, column] = token
    return batch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.out(self.embed(tokens).mean(1))


def main():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Sentences(), batch_size=BATCH, collate_fn=pad, num_workers=2)
    for epoch in range(3):
        for tokens in loader:
            loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
