"""Six workers that each compute with four threads, on however few cores there are."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Filtered(Dataset):
    def __init__(self):
        self.volumes = torch.rand(8, 1, 8, 48, 48, 48)
        self.kernel = torch.rand(8, 8, 3, 3, 3)

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return nn.functional.conv3d(self.volumes[index % 8], self.kernel)[0, :, ::8, ::8, ::8], index % 10


def threaded(worker):
    torch.set_num_threads(4)


def main():
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    optimizer = None
    for volumes, labels in DataLoader(Filtered(), batch_size=4, num_workers=6, worker_init_fn=threaded):
        loss = nn.functional.cross_entropy(net(volumes), labels)
        optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
