"""Two processes train together; the first one also keeps statistics."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DUTY_MS = 30


def statistics(loss):
    time.sleep(DUTY_MS / 1000)  # sends its numbers to a slow service
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(8192, 64), torch.randint(4, (8192,)))
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(200):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=32, sampler=sampler):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dist.get_rank() == 0:
                statistics(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
