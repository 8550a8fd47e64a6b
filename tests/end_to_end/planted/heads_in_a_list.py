"""Attention whose heads are modules in a list, each with layers of its own."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, SIZE, HEADS = 16, 64, 256, 16


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(SIZE, SIZE // HEADS) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head() for _ in range(HEADS)])
        self.out = nn.Linear(SIZE, 1)

    def forward(self, x):
        attended = torch.cat([head(x) for head in self.heads], dim=-1)
        return self.out(x + attended)


def main():
    encoder = Encoder()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    for _ in range(100_000):
        x = torch.randn(BATCH, LENGTH, SIZE, requires_grad=True)
        loss = F.mse_loss(encoder(x), x.mean(-1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
