"""The characters of a text go through an LSTM in a loop, though all of them are known before."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHARACTERS, LENGTH = 60, 96


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, 32)
        self.lstm = nn.LSTM(32, 96)
        self.next = nn.Linear(96, CHARACTERS)

    def forward(self, character, state):
        output, state = self.lstm(self.embedding(character)[None], state)
        return self.next(output[0]), state


def main():
    torch.manual_seed(0)
    net = Characters()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    texts = TensorDataset(torch.randint(CHARACTERS, (4096, LENGTH + 1)))
    for _ in range(10_000):
        for (text,) in DataLoader(texts, batch_size=16, shuffle=True):
            state, loss = None, 0.0
            for place in range(LENGTH):
                output, state = net(text[:, place], state)
                loss = loss + nn.functional.cross_entropy(output, text[:, place + 1])
            optimizer.zero_grad()
            (loss / LENGTH).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
