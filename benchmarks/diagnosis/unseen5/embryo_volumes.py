"""Staging of zebrafish embryos from light-sheet volumes, 3-D CNN."""
import hashlib
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

config = dict(
    volumes=480,
    side=28,
    stages=5,
    batch=12,
    epochs=90,
    channels=(12, 24, 48),
    lr=1e-3,
    seed=31,
    plate_reply=0.007,
)


def grow(stage, side, rng):
    """A yolk ball and, with the stage, a longer and longer bent body around it."""
    z, y, x = np.mgrid[:side, :side, :side].astype(np.float32) / side - 0.5
    c = rng.normal(0, 0.05, 3)
    d = np.sqrt((z - c[0]) ** 2 + (y - c[1]) ** 2 + (x - c[2]) ** 2)
    vol = 110.0 * (d < 0.2)
    phase = rng.uniform(0, 2 * np.pi)
    for a in np.linspace(0, 0.9 * (stage + 1), 6 + 4 * stage):
        p = c + 0.28 * np.array([0.3 * np.sin(2 * a), np.cos(a + phase), np.sin(a + phase)])
        vol += 60.0 * (((z - p[0]) ** 2 + (y - p[1]) ** 2 + (x - p[2]) ** 2) < 0.004)
    return np.clip(vol + rng.normal(20, 18, vol.shape), 0, 255).astype(np.uint8)


class PlateStore:
    """Local stand-in for the microscope's plate server, with its response time."""

    def __init__(self, folder, reply):
        self.folder, self.reply = folder, reply

    def path(self, key):
        return os.path.join(self.folder, hashlib.md5(key.encode()).hexdigest()[:10] + ".npy")

    def put(self, key, volume):
        np.save(self.path(key), volume)

    def get(self, key):
        time.sleep(self.reply)
        return np.load(self.path(key))


class Embryos(Dataset):
    def __init__(self, store, keys, labels):
        self.store, self.keys, self.labels = store, keys, labels

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        v = torch.from_numpy(self.store.get(self.keys[i])).float()
        return (v / 64 - 1).unsqueeze(0), self.labels[i]


def network(channels, stages):
    layers, c = [], 1
    for w in channels:
        layers += [nn.Conv3d(c, w, 3, padding=1), nn.BatchNorm3d(w), nn.LeakyReLU(0.1), nn.MaxPool3d(2)]
        c = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(c, stages))


def fill(store, cfg):
    rng = np.random.default_rng(cfg["seed"])
    keys, labels = [], []
    for i in range(cfg["volumes"]):
        stage = int(rng.integers(cfg["stages"]))
        key = f"plate{i // 96}/well{i % 96:02d}"
        store.put(key, grow(stage, cfg["side"], rng))
        keys.append(key)
        labels.append(stage)
    return keys, labels


def score(model, loader):
    model.eval()
    right = n = 0
    with torch.no_grad():
        for v, s in loader:
            right += (model(v).argmax(1) == s).sum().item()
            n += len(s)
    return right / n


def main(cfg):
    torch.manual_seed(cfg["seed"])
    folder = tempfile.mkdtemp(prefix="embryos_")
    try:
        store = PlateStore(folder, cfg["plate_reply"])
        keys, labels = fill(store, cfg)
        n = len(keys) - 48
        train = DataLoader(Embryos(store, keys[:n], labels[:n]), batch_size=cfg["batch"], shuffle=True)
        test = DataLoader(Embryos(store, keys[n:], labels[n:]), batch_size=24)
        model = network(cfg["channels"], cfg["stages"])
        opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"] * 20, momentum=0.9, nesterov=True, weight_decay=1e-4)
        loss_fn = nn.CrossEntropyLoss()
        for epoch in range(1, cfg["epochs"] + 1):
            model.train()
            losses = []
            for volume, stage in train:
                opt.zero_grad()
                loss = loss_fn(model(volume), stage)
                loss.backward()
                opt.step()
                losses.append(loss.item())
            text = f"epoch {epoch}: loss {np.mean(losses):.4f}"
            if epoch % 5 == 0:
                text += f", accuracy {score(model, test):.3f}"
            print(text, flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(config)
