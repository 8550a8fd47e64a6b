"""Two processes train together; the second one's samples come from a disk that answers late."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, late):
        self.late = late

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.late:
            time.sleep(0.004)
        return torch.full((32,), float(index % 7)), index % 10


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = Points(late=os.environ["RANK"] == "1")
    for points, labels in DataLoader(data, batch_size=8, num_workers=1):
        loss = nn.functional.cross_entropy(net(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
