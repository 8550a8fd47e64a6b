"""Four samples a step, though the optimizer walks over a million weights in each of them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    net = nn.Sequential(nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    points = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=4, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
