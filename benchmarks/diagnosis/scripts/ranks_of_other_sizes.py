"""Two processes divide a corpus by length, so that one of them has the long texts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

LONG = 320
SHORT = 16


class Half(Dataset):
    def __init__(self, rank):
        self.length = LONG if rank == 1 else SHORT

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        return torch.full((self.length, 24), (index % 9) / 9), index % 3


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[1][-1])


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(Reader())
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(Half(dist.get_rank()), batch_size=8):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
