"""A recurrent network over an endless stream of generated sequences, with gradient accumulation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

UNITS = 160
ACCUMULATE = 4


class Waves(IterableDataset):
    def __iter__(self):
        time = torch.linspace(0, 6.28, 80)
        while True:
            phase, speed = torch.rand(2)
            yield torch.stack([torch.sin(speed * 5 * time + phase), torch.cos(speed * time)], dim=1), speed


class Speed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, UNITS, num_layers=2, batch_first=True)
        self.out = nn.Linear(UNITS, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(1)


def main(steps=5000):
    model = Speed()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Waves(), batch_size=16, num_workers=1))
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(ACCUMULATE):
            x, y = next(batches)
            loss = nn.functional.mse_loss(model(x), y) / ACCUMULATE
            loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
