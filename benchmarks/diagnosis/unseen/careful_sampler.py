"""Heartbeat-like pulses with rare arrhythmias; importance-weighted drawing of the training set."""
from typing import Iterator

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset

BATCH = 64
KERNELS = 40
EXAMPLES = 120_000
CLASSES = 5
POINTS = 64


def synthesise(seed: int = 77):
    rng = np.random.default_rng(seed)
    label = rng.choice(CLASSES, EXAMPLES, p=[0.9, 0.05, 0.03, 0.015, 0.005])
    t = np.linspace(0, 1, POINTS, dtype=np.float32)
    prototypes = np.stack([np.sin(2 * np.pi * (2 + 0.7 * c) * t) * np.exp(-3 * t * (1 + 0.4 * c)) for c in range(CLASSES)])
    x = prototypes.astype(np.float32)[label]
    x += rng.standard_normal(x.shape, dtype=np.float32) * 0.4
    return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(label)


class ImportanceSampler(Sampler[int]):
    """Draws with replacement, in proportion to the given importance."""

    def __init__(self, importance: np.ndarray, draws: int, seed: int = 0):
        self.p = importance / importance.sum()
        self.draws = draws
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.draws):
            yield int(self.rng.choice(len(self.p), p=self.p))


class PulseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(1, KERNELS, 7, padding=3)
        self.c2 = nn.Conv1d(KERNELS, 2 * KERNELS, 5, padding=2)
        self.c3 = nn.Conv1d(2 * KERNELS, 2 * KERNELS, 3, padding=1)
        self.fc = nn.Linear(2 * KERNELS, CLASSES)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.c1(x)), 2)
        x = F.max_pool1d(F.relu(self.c2(x)), 2)
        return self.fc(F.relu(self.c3(x)).mean(-1))


def main():
    torch.manual_seed(77)
    x, y = synthesise()
    frequency = np.bincount(y.numpy(), minlength=CLASSES)
    importance = 1.0 / np.sqrt(frequency[y.numpy()])
    train = TensorDataset(x, y)
    loader = DataLoader(
        train,
        batch_size=BATCH,
        sampler=ImportanceSampler(importance, draws=60_000),
        num_workers=1,
        persistent_workers=True,
    )
    net = PulseNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for epoch in range(300):
        loss_sum = torch.zeros(())
        for i, (xb, yb) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(xb), yb)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            if i % 100 == 99:
                print(f"{epoch}:{i + 1} mean loss {loss_sum.item() / (i + 1):.4f}")


if __name__ == "__main__":
    main()
