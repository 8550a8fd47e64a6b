"""All workers share one connection to a database, behind a lock."""

import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

QUERY_MS = 4
WORKERS = 3
BATCH = 8


class Connection:
    """Stands for a service that answers one question at a time."""

    def __init__(self):
        self.lock = multiprocessing.Lock()

    def query(self, key):
        with self.lock:
            time.sleep(QUERY_MS / 1000)
            return [float((key * 31 + column) % 17) for column in range(40)]


class Rows(Dataset):
    def __init__(self, connection):
        self.connection = connection

    def __len__(self):
        return 50_000

    def __getitem__(self, key):
        return torch.tensor(self.connection.query(key)), key % 2


def main():
    rows = Rows(Connection())
    net = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(rows, batch_size=BATCH, num_workers=WORKERS):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
