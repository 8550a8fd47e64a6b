"""Galaxy shapes from a remote object store (simulated here, with its usual latency)."""
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 16
WIDTH = 32
LATENCY_MS = 3

STAMP = 48


class ObjectStore:
    """Stands in for the observatory's bucket: compressed stamps, a few milliseconds per request."""

    def __init__(self, n=1500):
        rng = np.random.default_rng(64)
        yy, xx = np.mgrid[-1:1:STAMP * 1j, -1:1:STAMP * 1j]
        self.blobs, self.labels = [], rng.integers(0, 3, n)
        for kind in self.labels:
            angle, flat = rng.uniform(0, np.pi), rng.uniform(0.35, 0.9)
            u = xx * np.cos(angle) + yy * np.sin(angle)
            v = (yy * np.cos(angle) - xx * np.sin(angle)) / flat
            r, phi = np.hypot(u, v), np.arctan2(v, u)
            light = np.exp(-3 * r)
            if kind == 1:
                light *= 1 + 0.8 * np.cos(2 * phi + 9 * r)
            elif kind == 2:
                light += 0.7 * np.exp(-((r - 0.5) / 0.08) ** 2)
            light += 0.05 * rng.standard_normal(light.shape)
            self.blobs.append(zlib.compress((np.clip(light, 0, 2) * 127).astype(np.uint8).tobytes(), 1))

    def get(self, key):
        time.sleep(LATENCY_MS / 1000)
        return self.blobs[key]


class Galaxies(Dataset):
    def __init__(self, store):
        self.store = store

    def __len__(self):
        return len(self.store.blobs)

    def __getitem__(self, key):
        raw = zlib.decompress(self.store.get(key))
        image = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(1, STAMP, STAMP)
        return image.float().div(127), int(self.store.labels[key])


class GalaxyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTH, 5, padding=2)
        self.convs = nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2)])
        self.wide = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1)
        self.fc = nn.Linear(2 * WIDTH, 3)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.fc(F.relu(self.wide(x)).mean((2, 3)))


def main():
    torch.manual_seed(64)
    loader = DataLoader(Galaxies(ObjectStore()), batch_size=BATCH_SIZE, shuffle=True,
                        num_workers=2, prefetch_factor=4, persistent_workers=True)
    net = GalaxyNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    for epoch in range(1, 301):
        seen, loss_sum = 0, 0.0
        for images, kinds in loader:
            loss = F.cross_entropy(net(images), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(kinds)
            loss_sum += loss.item() * len(kinds)
        print(f"epoch {epoch} | {seen} galaxies | loss {loss_sum / seen:.4f}", flush=True)


if __name__ == "__main__":
    main()
