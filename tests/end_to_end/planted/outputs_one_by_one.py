"""A decoder that reads its own output, and writes the scores of each time step into one large tensor."""

import torch
from torch import nn

LENGTH, BATCH, WORDS, SIZE = 60, 16, 2_000, 64


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, SIZE)
        self.cell = nn.GRUCell(SIZE, SIZE)
        self.scores = nn.Linear(SIZE, WORDS)

    def forward(self, state):
        outputs = torch.zeros(LENGTH, len(state), WORDS)
        word = torch.zeros(len(state), dtype=torch.long)
        for place in range(LENGTH):
            state = self.cell(self.embedding(word), state)
            outputs[place] = self.scores(state)
            word = outputs[place].argmax(1)
        return outputs


def main():
    decoder = Decoder()
    optimizer = torch.optim.SGD(decoder.parameters(), lr=0.01)
    for _ in range(100_000):
        outputs = decoder(torch.randn(BATCH, SIZE))
        targets = torch.randint(WORDS, (LENGTH * BATCH,))
        loss = nn.functional.cross_entropy(outputs.reshape(-1, WORDS), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
