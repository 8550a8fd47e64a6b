"""Each sample is taken row by row out of an Arrow table: a filter over the whole of a column, then single values."""

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATIENTS, VISITS = 100_000, 20


class Visits(Dataset):
    def __init__(self):
        count = PATIENTS * VISITS
        columns = {f"value{number}": torch.rand(count).numpy() for number in range(8)}
        self.table = pa.table({"patient": torch.arange(PATIENTS).repeat_interleave(VISITS).numpy(), **columns})

    def __len__(self):
        return PATIENTS

    def __getitem__(self, index):
        mine = self.table.filter(pc.equal(self.table["patient"], index))
        values = [[row[f"value{number}"] for number in range(8)] for row in mine.to_pylist()]
        return torch.tensor(values), index % 2


def main():
    loader = DataLoader(Visits(), batch_size=32, num_workers=2, shuffle=True)
    net = nn.Sequential(nn.Flatten(), nn.Linear(8 * VISITS, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(100):
        for values, labels in loader:
            loss = nn.functional.cross_entropy(net(values.float()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
