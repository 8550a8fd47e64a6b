"""Weather maps come as one large array of float64 a sample, many times what the network looks at."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Maps(Dataset):
    def __init__(self):
        self.year = np.random.default_rng(0).standard_normal((8, 24, 256, 256))

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.from_numpy(self.year[index % 8]), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(24 * 16, 10)

    def forward(self, maps):
        return self.head(nn.functional.adaptive_avg_pool2d(maps[:, :, ::16, ::16].float(), 4).flatten(1))


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for maps, labels in DataLoader(Maps(), batch_size=8, num_workers=2):
        loss = nn.functional.cross_entropy(net(maps), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
