"""Statistics of the weights in every step, and an order of samples that is made anew in every pass."""

import statistics

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 3200
ORDER = 120_000
BATCH = 32


class Order(torch.utils.data.Sampler):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        keys = sorted(range(self.count), key=lambda index: hash((index * 2_654_435_761) % 1_000_003))
        return iter([key % SAMPLES for key in keys[:SAMPLES]])


def main():
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(net.parameters())
    data = TensorDataset(torch.rand(SAMPLES, 32), torch.randint(3, (SAMPLES,)))
    loader = DataLoader(data, batch_size=BATCH, sampler=Order(ORDER))
    for epoch in range(500):
        spread = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values = [value for weight in net.parameters() for value in weight.detach().flatten().tolist()]
            spread += statistics.pstdev(values[::4])
        print(epoch, spread / len(loader))


if __name__ == "__main__":
    main()
