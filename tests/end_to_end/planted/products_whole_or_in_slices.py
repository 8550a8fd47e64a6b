"""Products of matrices: each as one operator, or, with the argument "slices", as 1,024 small ones."""

import sys

import torch
from torch import nn

SIZE, SLICE = 512, 16


def product(one, other):
    if "slices" not in sys.argv:
        return one @ other
    columns = other.split(SLICE, dim=1)
    return torch.cat([torch.cat([rows @ column for column in columns], dim=1) for rows in one.split(SLICE)])


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(SIZE, SIZE) / SIZE**0.5 for _ in range(2))

    def forward(self, values):
        for weight in self.weights:
            values = product(values, weight)
        return values


def main():
    layers = Layers()
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.001)
    batch = torch.randn(SIZE, SIZE)
    while True:
        loss = layers(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
