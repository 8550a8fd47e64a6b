"""Two processes average their gradients by hand; the second one reads from a slower disk."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if os.environ["RANK"] == "1":
            time.sleep(0.006)
        return torch.full((64,), float(index % 5)), index % 4


def average(net):
    for weight in net.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for rows, labels in DataLoader(Rows(), batch_size=8, num_workers=1):
        loss = nn.functional.cross_entropy(net(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        average(net)
        optimizer.step()


if __name__ == "__main__":
    main()
