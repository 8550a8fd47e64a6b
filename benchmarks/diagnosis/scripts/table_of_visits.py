"""Rows of a Parquet table, looked up one at a time."""

import sys

import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 8


class Visits(Dataset):
    def __init__(self, path):
        self.path = path
        self.rows = pq.ParquetFile(path).metadata.num_rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        table = pq.read_table(self.path)
        row = [float(table.column(name)[index].as_py()) for name in table.column_names]
        return torch.tensor(row[:-1]), torch.tensor(row[-1])


def fit(path):
    visits = Visits(path)
    width = len(visits[0][0])
    net = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    for x, y in DataLoader(visits, batch_size=BATCH, shuffle=True, num_workers=2):
        opt.zero_grad()
        nn.functional.mse_loss(net(x).squeeze(1), y).backward()
        opt.step()


if __name__ == "__main__":
    fit(sys.argv[1])
