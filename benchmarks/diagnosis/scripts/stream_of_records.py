"""A stream of sensor records, read from a store object by object with Lightning on top."""

import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCH = 8
UNITS = 48


class Store:
    def __init__(self, root):
        self.root = root

    def get(self, key):
        if self.root.startswith("http"):
            return urllib.request.urlopen(f"{self.root}/{key}").read()
        return Path(self.root, key).read_bytes()


class Records(IterableDataset):
    def __init__(self, store, keys):
        self.store, self.keys = store, keys

    def __iter__(self):
        worker = get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for _ in range(200):
            for key in self.keys[start::step]:
                record = np.frombuffer(self.store.get(key), dtype=np.float32)
                yield torch.from_numpy(record[:4096].copy()).view(64, 64), torch.tensor(float(record[0] > 0))


class Detector(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, 1)

    def training_step(self, batch, _):
        series, label = batch
        _, (state, _) = self.lstm(series)
        loss = nn.functional.binary_cross_entropy_with_logits(self.head(state[-1]).squeeze(1), label)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    store = Store(sys.argv[1])
    records = Records(store, store.get("records.txt").decode().split())
    trainer = pl.Trainer(
        max_epochs=5, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    trainer.fit(Detector(), DataLoader(records, batch_size=BATCH, num_workers=3))
