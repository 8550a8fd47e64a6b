"""Recognise worker activities (walk, lift, carry, drill, climb, idle) from a wrist and a belt IMU.

Every shift is one recording of 20 minutes at 100 Hz with 12 channels (2 x accelerometer + gyroscope), stored by the logger as
a compressed npz together with the labels. We cut windows of 2.56 s with half overlap.
"""
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "imu_activity_shifts")
RATE = 100
WINDOW = 256
STRIDE = 128
ACTIVITIES = ["idle", "walk", "lift", "carry", "drill", "climb"]


def synth_shift(rng, minutes=20):
    n = minutes * 60 * RATE
    signal = np.zeros((n, 12), dtype=np.float32)
    label = np.zeros(n, dtype=np.int64)
    base_freq = [0.1, 1.8, 0.6, 1.5, 28.0, 1.1]
    amplitude = [0.05, 0.6, 0.9, 0.5, 0.8, 0.9]
    pos = 0
    while pos < n:
        length = int(rng.integers(8, 40)) * RATE
        end = min(n, pos + length)
        kind = int(rng.integers(len(ACTIVITIES)))
        t = np.arange(end - pos) / RATE
        freq = base_freq[kind] * rng.uniform(0.85, 1.15)
        for ch in range(12):
            phase = rng.uniform(0, 2 * math.pi)
            gain = amplitude[kind] * rng.uniform(0.4, 1.2)
            signal[pos:end, ch] = gain * np.sin(2 * math.pi * freq * t + phase)
            signal[pos:end, ch] += 0.3 * gain * np.sin(4 * math.pi * freq * t + 2 * phase)
        label[pos:end] = kind
        pos = end
    signal += rng.normal(0, 0.15, signal.shape)
    signal[:, 2] += 9.81
    signal[:, 8] += 9.81
    return np.round(signal, 3), label


def prepare(n_shifts=16):
    os.makedirs(ROOT, exist_ok=True)
    index_file = os.path.join(ROOT, "index.json")
    if os.path.exists(index_file):
        return json.load(open(index_file))
    rng = np.random.default_rng(7)
    index = []
    for i in range(n_shifts):
        signal, label = synth_shift(rng)
        name = f"shift_{i:03d}.npz"
        np.savez_compressed(os.path.join(ROOT, name), imu=signal, activity=label)
        index.append({"file": name, "samples": len(label), "split": "val" if i >= n_shifts - 2 else "train"})
    with open(index_file, "w") as f:
        json.dump(index, f, indent=1)
    return index


class WindowDataset(Dataset):
    def __init__(self, index, split, augment=False):
        self.augment = augment
        self.windows = []
        for entry in index:
            if entry["split"] != split:
                continue
            path = os.path.join(ROOT, entry["file"])
            for start in range(0, entry["samples"] - WINDOW + 1, STRIDE):
                self.windows.append((path, start))

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        path, start = self.windows[i]
        with np.load(path) as recording:
            imu = recording["imu"][start:start + WINDOW]
            activity = recording["activity"][start:start + WINDOW]
        x = torch.from_numpy(imu.T.copy()).float()
        x[[2, 8]] -= 9.81
        if self.augment:
            x = x * (1 + 0.1 * torch.randn(12, 1)) + 0.02 * torch.randn_like(x)
        y = int(np.bincount(activity, minlength=len(ACTIVITIES)).argmax())
        return x, y


class ResidualBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(cin, cout, 7, stride=stride, padding=3, bias=False)
        self.bn1 = nn.BatchNorm1d(cout)
        self.conv2 = nn.Conv1d(cout, cout, 5, padding=2, bias=False)
        self.bn2 = nn.BatchNorm1d(cout)
        self.skip = nn.Conv1d(cin, cout, 1, stride=stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + self.skip(x))


class ActivityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(
            ResidualBlock(12, 48, 2), ResidualBlock(48, 96, 2), ResidualBlock(96, 128, 2), ResidualBlock(128, 128, 2))
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(128, len(ACTIVITIES)))

    def forward(self, x):
        return self.head(self.blocks(x).mean(-1))


@torch.no_grad()
def evaluate(model, loader, max_batches=8):
    model.eval()
    hit = total = 0
    for k, (x, y) in enumerate(loader):
        if k == max_batches:
            break
        hit += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hit / total


def main():
    torch.manual_seed(0)
    index = prepare()
    train_set = WindowDataset(index, "train", augment=True)
    val_set = WindowDataset(index, "val")
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=32)
    print(f"{len(train_set)} training windows, {len(val_set)} validation windows")

    model = ActivityNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=30000)
    step = 0
    started = time.time()
    for epoch in range(36):
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {step / (time.time() - started):.2f} steps/s", flush=True)
            if step % 400 == 0:
                print(f"  validation accuracy {evaluate(model, val_loader):.3f}")
                torch.save(model.state_dict(), os.path.join(ROOT, "activity_net.pt"))


if __name__ == "__main__":
    main()
