"""Workers that use torch's own operators on as many threads as they like."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS = 6
THREADS = 8
SIDE = 320
BATCH = 4


def use_threads(worker):
    torch.set_num_threads(THREADS)


class Fields(Dataset):
    def __init__(self):
        self.field = torch.rand(1, 3, SIDE, SIDE)
        self.kernel = torch.rand(8, 3, 5, 5)

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        with torch.no_grad():
            smooth = torch.nn.functional.conv2d(self.field.roll(index, 2), self.kernel, padding=2)
            return torch.nn.functional.interpolate(smooth, (64, 64), mode="bilinear")[0], index % 3


def main():
    net = nn.Sequential(
        nn.Conv2d(8, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Fields(), batch_size=BATCH, num_workers=WORKERS, worker_init_fn=use_threads)
    for fields, labels in loader:
        loss = nn.functional.cross_entropy(net(fields), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
