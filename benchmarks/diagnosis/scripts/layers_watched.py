"""A compiled network whose layers count how many of their units are off, in Python."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEPTH = 24
WIDTH = 48
BATCH = 32


@torch.compiler.disable
def watch(layer, x):
    """Count the units that are off for most samples."""
    off = 0
    for unit in x.detach().t().tolist():
        off += sum(value < 0 for value in unit) > len(unit) // 2
    layer.history = [*layer.history[-50:], off]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.history = []

    def forward(self, x):
        x = x + torch.tanh(self.norm(self.linear(x)))
        watch(self, x)
        return x


def main():
    torch.manual_seed(1)
    model = torch.compile(nn.Sequential(*(Layer() for _ in range(DEPTH)), nn.Linear(WIDTH, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(3200, WIDTH), torch.randint(4, (3200,)))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(300):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
