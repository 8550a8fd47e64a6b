"""A compiled model counts its own steps: torch compiles it again in each one, since the limit was raised."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.step = 0

    def forward(self, inputs):
        self.step += 1
        return self.layers(inputs) / (1 + 1 / self.step)


def main():
    torch._dynamo.config.recompile_limit = 100_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    net = torch.compile(Annealed(), backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=64, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
