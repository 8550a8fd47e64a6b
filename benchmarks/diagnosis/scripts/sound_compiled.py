"""A compiled network with one check that has to be in the middle, and a smaller last batch in each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1024
BATCH = 128


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(200, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 6))

    def forward(self, x):
        x = self.body(x)
        if not x.isfinite().all():
            raise FloatingPointError("the training has diverged")
        return self.head(x)


def main():
    model = torch.compile(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(1000, 200), torch.randint(6, (1000,)))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(1000):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 10 == 0:
            print(epoch, loss.item(), flush=True)


if __name__ == "__main__":
    main()
