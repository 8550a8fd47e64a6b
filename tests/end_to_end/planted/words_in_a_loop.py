"""A decoder with attention that is given the words of a text, and computes the words that follow in each step."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

WORDS, SIZE, LENGTH, BATCH, SOURCE = 20_000, 128, 24, 8, 20


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, SIZE, sparse=True)
        self.cell = nn.GRUCell(2 * SIZE, SIZE)
        self.out = nn.Linear(SIZE, WORDS)

    def forward(self, word, state, source):
        weights = torch.softmax((source @ state[:, :, None]).squeeze(2), 1)
        state = self.cell(torch.cat([self.embedding(word), (weights[:, None] @ source).squeeze(1)], 1), state)
        return self.out(state), state


def main():
    net = Decoder()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(100_000):
        text, source = torch.randint(WORDS, (LENGTH + 1, BATCH)), torch.randn(BATCH, SOURCE, SIZE)
        state, loss = torch.zeros(BATCH, SIZE), 0.0
        for word, following in pairwise(text):
            scores, state = net(word, state, source)
            loss = loss + F.cross_entropy(scores, following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
