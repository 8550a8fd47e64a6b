"""A compiled model with one graph break that cannot be avoided, and with a smaller last batch in each epoch."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))

    def forward(self, inputs):
        features = self.features(inputs)
        if not features.isfinite().all():
            raise FloatingPointError("the features have diverged")
        return self.head(features)


def main():
    net = torch.compile(Net(), backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(1000, 256), torch.randint(10, (1000,)))
    # Rows of a whole batch at once: fetching takes no time worth a worker.
    loader = DataLoader(points, sampler=BatchSampler(RandomSampler(points), 128, drop_last=False), batch_size=None)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
