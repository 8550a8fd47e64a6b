"""Recommendations by a model whose loss is a method: no module holds most of it. Nothing is wrong."""

import torch
from torch import nn
from torch.nn import functional as F

ITEMS, SIZE, SAMPLES = 600, 512, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(0.05 * torch.randn(SIZE, SIZE)) for _ in range(6))
        self.items = nn.Embedding(ITEMS, SIZE)

    def encoded(self, x):
        for weight in self.weights:
            x = torch.relu(x @ weight)
        return x

    def ranking_loss(self, x, chosen):
        scores = self.encoded(x) @ self.items.weight.t()
        return F.cross_entropy(scores, chosen) + 1e-4 * self.items(chosen).pow(2).mean()


def main():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    users, items = torch.randn(20_000, SIZE), torch.randint(0, ITEMS, (20_000,))
    while True:
        for begin in range(0, len(users), SAMPLES):
            optimizer.zero_grad()
            loss = model.ranking_loss(users[begin : begin + SAMPLES], items[begin : begin + SAMPLES])
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
