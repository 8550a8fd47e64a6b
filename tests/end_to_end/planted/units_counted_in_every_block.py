"""Each block of a compiled model calls a function that the compiler leaves alone, so that its graph is in pieces."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

off = []


@torch.compiler.disable
def count_units(hidden):
    off.append(sum(value == 0 for row in hidden.detach().tolist() for value in row))
    del off[:-100]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, hidden):
        hidden = torch.relu(self.layer(hidden))
        count_units(hidden)
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
