"""Small layers on many tokens, with dropout after each of them: a CPU draws its random numbers one by one."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.second(self.dropout(torch.relu(self.first(x)))))


def main():
    model = nn.Sequential(nn.Embedding(1000, 64), *[Block(64) for _ in range(4)], nn.Linear(64, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(1_000_000):
        tokens = torch.randint(1000, (64, 128))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten() % 16)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
