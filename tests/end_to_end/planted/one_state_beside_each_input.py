"""Attention at each time step over the same inputs, with the state put beside each of them."""

import torch
from torch import nn
from torch.nn import functional as F

SERIES, LENGTH, BATCH, SIZE = 80, 12, 64, 64


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(2 * SIZE + LENGTH, 16), nn.Tanh(), nn.Linear(16, 1))
        self.cell = nn.LSTMCell(SERIES, SIZE)
        self.out = nn.Linear(SIZE, 1)

    def forward(self, series):
        state = memory = series.new_zeros(len(series), SIZE)
        across = series.transpose(1, 2)
        for place in range(LENGTH):
            rows = torch.cat(
                (
                    state.repeat(SERIES, 1, 1).permute(1, 0, 2),
                    memory.repeat(SERIES, 1, 1).permute(1, 0, 2),
                    across,
                ),
                dim=2,
            )
            weights = F.softmax(self.attention(rows).squeeze(2), dim=1)
            state, memory = self.cell(weights * series[:, place], (state, memory))
        return self.out(state)


def main():
    encoder = Encoder()
    optimizer = torch.optim.Adam(encoder.parameters())
    for _ in range(100_000):
        series = torch.randn(BATCH, LENGTH, SERIES)
        loss = F.mse_loss(encoder(series), series.mean((1, 2))[:, None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
