"""Regression on raw satellite tiles of a few megabytes each, which lie on a server."""

import argparse
import http.client
import urllib.parse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 4


class Tiles(Dataset):
    def __init__(self, source):
        self.source = source
        self.connection = None

    def fetch(self, name):
        if not self.source.startswith("http"):
            return np.fromfile(f"{self.source}/{name}", dtype=np.uint16)
        if self.connection is None:
            self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.source).netloc)
        self.connection.request("GET", f"/{name}")
        return np.frombuffer(self.connection.getresponse().read(), dtype=np.uint16)

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        tile = self.fetch(f"tile{index % 8}.raw").reshape(4, 720, 720)
        return torch.from_numpy(tile.astype(np.float32) / 65535), torch.tensor(
            [tile.mean() / 65535], dtype=torch.float32
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    tiles = Tiles(parser.parse_args().source)
    net = nn.Sequential(
        nn.Conv2d(4, 8, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 1)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for inputs, target in DataLoader(tiles, batch_size=BATCH, num_workers=2):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs), target).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
