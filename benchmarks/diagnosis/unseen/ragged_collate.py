"""Spoken digit recognition on simulated filter-bank features of different lengths."""
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 24
MELS = 40
LONGEST = 130


class Utterances(Dataset):
    def __init__(self, count=2400, seed=0):
        rng = np.random.default_rng(seed)
        self.digits = rng.integers(0, 10, count)
        self.features = []
        band = np.arange(MELS)
        for digit in self.digits:
            frames = int(rng.integers(LONGEST // 2, LONGEST))
            track = MELS / 2 + (MELS / 3) * np.sin(np.linspace(0, math.pi * (1 + digit / 3), frames))
            f = np.exp(-0.5 * ((band[None, :] - track[:, None]) / 3.0) ** 2)
            self.features.append((f + 0.3 * rng.standard_normal((frames, MELS))).astype(np.float32))

    def __len__(self):
        return len(self.features)

    def __getitem__(self, i):
        return self.features[i], self.digits[i]


def pad_batch(samples):
    longest = max(len(f) for f, _ in samples)
    padded, lengths, digits = [], [], []
    for features, digit in samples:
        frames = []
        for t in range(longest):
            if t < len(features):
                frames.append([float(features[t, m]) for m in range(MELS)])
            else:
                frames.append([0.0] * MELS)
        padded.append(frames)
        lengths.append(len(features))
        digits.append(int(digit))
    return torch.tensor(padded), torch.tensor(lengths), torch.tensor(digits)


class Recogniser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.front = nn.Conv1d(MELS, width, 5, stride=2, padding=2)
        self.middle = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.back = nn.Linear(width, 10)

    def forward(self, x, lengths):
        h = torch.relu(self.front(x.transpose(1, 2)))
        h = torch.relu(self.middle(h))
        valid = torch.arange(h.shape[2])[None] < (lengths[:, None] + 3) // 4
        pooled = (h * valid[:, None]).sum(2) / valid.sum(1, keepdim=True)
        return self.back(pooled)


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, n, y in loader:
            right += (model(x, n).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return right / total


def main():
    torch.manual_seed(0)
    train = DataLoader(Utterances(), BATCH_SIZE, shuffle=True, collate_fn=pad_batch,
                       num_workers=1, persistent_workers=True)
    test = DataLoader(Utterances(96, seed=1), BATCH_SIZE, collate_fn=pad_batch)
    model = Recogniser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    for epoch in range(600):
        for x, n, y in train:
            loss = nn.functional.cross_entropy(model(x, n), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3d}   test accuracy {accuracy(model, test):.1%}")


if __name__ == "__main__":
    main()
