"""Two processes that train together over gloo: DistributedDataParallel, then FSDP2. Each prints its losses."""

import os
import sys

import learning
import torch
import torch.multiprocessing
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler


def sharded(net):
    mesh = distributed.init_device_mesh("cpu", (2,))
    for part in (*net[::2], net):
        distributed.fsdp.fully_shard(part, mesh=mesh)
    return net


def train(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    losses = []
    learning.seed()
    for wrapped in (torch.nn.parallel.DistributedDataParallel, sharded):
        torch.manual_seed(0)
        net = wrapped(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        points = learning.Points(32)
        loader = DataLoader(points, 4, sampler=DistributedSampler(points, 2, rank, seed=3))
        for _ in range(2):
            for batch, targets in loader:
                loss = (net(batch) - targets).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item().hex())
                distributed.all_reduce(loss.detach())
    with open(f"{folder}/losses-{rank}", "w") as file:
        file.write("\n".join(losses))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.start_processes(train, (sys.argv[1],), 2, start_method="fork")
    for number in range(2):
        with open(os.path.join(sys.argv[1], f"losses-{number}")) as told:
            print(told.read())
