"""Every step writes a record of the whole training into a journal, and makes sure that it is on disk."""

import json
import logging
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 128
LINES = 150

log = logging.getLogger("training")


class Durable(logging.FileHandler):
    def emit(self, record):
        super().emit(record)
        os.fsync(self.stream.fileno())


def main():
    log.addHandler(Durable("journal.log", mode="w"))
    log.setLevel(logging.INFO)
    data = TensorDataset(torch.rand(4096, 48), torch.randint(6, (4096,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(500):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for row in range(LINES // 10):
                log.info(json.dumps({"epoch": epoch, "step": step, "row": row, "loss": loss.item()}))


if __name__ == "__main__":
    main()
