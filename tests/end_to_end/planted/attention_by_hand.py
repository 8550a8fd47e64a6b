"""A small model of characters whose attention multiplies, masks, and takes the softmax itself, as tutorials do."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CHARACTERS, LENGTH, SIZE, HEADS = 80, 512, 64, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (one.view(B, T, HEADS, C // HEADS).transpose(1, 2) for one in self.qkv(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = F.softmax(att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")), dim=-1)
        return self.out((att @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)])
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(SIZE, 2 * SIZE), nn.GELU(), nn.Linear(2 * SIZE, SIZE))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


def main():
    net = nn.Sequential(nn.Embedding(CHARACTERS, SIZE), Block(), Block(), nn.Linear(SIZE, CHARACTERS))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    texts = DataLoader(TensorDataset(torch.randint(0, CHARACTERS, (4_000, LENGTH + 1))), 4, shuffle=True)
    while True:
        for (text,) in texts:
            loss = F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
