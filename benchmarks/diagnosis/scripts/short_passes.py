"""A small table is passed over many times; helpers are spawned."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS = 2048
BATCH = 64


def main():
    table = TensorDataset(torch.rand(ROWS, 32), torch.randint(4, (ROWS,)))
    loader = DataLoader(table, batch_size=BATCH, shuffle=True, num_workers=2, multiprocessing_context="forkserver")
    net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    best = 1e9
    for epoch in range(1000):
        mean = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            mean += loss.item() / len(loader)
        best = min(best, mean)


if __name__ == "__main__":
    main()
