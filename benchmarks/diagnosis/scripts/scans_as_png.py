"""Autoencoder over scanned pages; an iterable data set that divides the files among its workers."""

import argparse
import itertools
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CODE = 64
BATCH = 12


class Pages(IterableDataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.png"))

    def __iter__(self):
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers] if info else list(self.files)
        for _ in itertools.repeat(None):
            random.shuffle(mine)
            for path in mine:
                yield self.load(path)

    def load(self, path):
        page = np.asarray(Image.open(path))
        return torch.from_numpy(page[::16, ::16].astype(np.float32) / 255.0).mean(-1)


class AutoEncoder(nn.Module):
    def __init__(self, pixels):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(pixels, CODE), nn.ReLU())
        self.decode = nn.Linear(CODE, pixels)

    def forward(self, pages):
        return self.decode(self.encode(pages)).view_as(pages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    args = parser.parse_args()
    pages = Pages(args.folder)
    loader = DataLoader(pages, batch_size=BATCH, num_workers=2)
    model = AutoEncoder(next(iter(pages)).numel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, batch in enumerate(loader):
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())
        if step == 5000:
            break
