"""Each block of a compiled model reads a number into Python, so that its graph is in pieces."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer, self.norms = nn.Linear(width, width), []

    def forward(self, hidden):
        hidden = torch.relu(self.layer(hidden))
        self.norms.append(hidden.abs().mean().item())
        del self.norms[:-100]
        return hidden


def main():
    net = torch.compile(nn.Sequential(*(Block(32) for _ in range(24)), nn.Linear(32, 10)), backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 32), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=64, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
