"""A small encoder of text with a layer norm and a GELU written out, as in many tutorials on transformers."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH, SIZE = 1_000, 64, 128


class LayerNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2, self.eps = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size)), eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class GELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.act = LayerNorm(SIZE), GELU()
        self.up, self.down = nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


def main():
    net = nn.Sequential(nn.Embedding(WORDS, SIZE), Block(), Block(), LayerNorm(SIZE), nn.Linear(SIZE, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    texts = TensorDataset(torch.randint(WORDS, (4096, LENGTH)), torch.randint(4, (4096,)))
    for _ in range(1_000):
        for text, label in DataLoader(texts, batch_size=64, shuffle=True):
            loss = F.cross_entropy(net(text).mean(1), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
