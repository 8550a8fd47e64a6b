"""Nothing wrong: deterministic algorithms and a few hooks that cost next to nothing."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

calls = []


def count(layer, inputs, output):
    calls.append(None)


def main():
    torch.use_deterministic_algorithms(True)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 28 * 28, 10)
    )
    for layer in net:
        layer.register_forward_hook(count)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pictures = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    loader = DataLoader(pictures, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
