"""Bearing damage classes from vibration windows (CWRU-like, synthetic)."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("bearing")
FS = 12000
STATES = ("healthy", "inner_race", "outer_race", "ball", "cage")
DEFECT_ORDER = (0.0, 5.42, 3.58, 4.71, 0.398)  # multiples of the shaft frequency


def simulate(state, windows, length, rng):
    out = np.empty((windows, length), np.float32)
    t = np.arange(length) / FS
    kernel = np.exp(-900 * t[:200]) * np.sin(2 * np.pi * 3100 * t[:200])
    for k in range(windows):
        shaft = rng.uniform(28, 31)
        sig = 0.3 * np.sin(2 * np.pi * shaft * t + rng.uniform(0, 6)) + rng.normal(0, 0.25, length)
        if DEFECT_ORDER[state]:
            period = FS / (shaft * DEFECT_ORDER[state])
            hits = np.arange(rng.uniform(0, period), length, period)
            hits = (hits + rng.normal(0, 2, len(hits))).clip(0, length - 1).astype(int)
            train = np.zeros(length)
            train[hits] = rng.uniform(0.6, 1.4, len(hits))
            sig += np.convolve(train, kernel)[:length]
        out[k] = sig
    return out


class Vibration(Dataset):
    def __init__(self, per_state, length, seed):
        rng = np.random.default_rng(seed)
        xs = [simulate(s, per_state, length, rng) for s in range(len(STATES))]
        self.x = torch.from_numpy(np.concatenate(xs))
        self.y = torch.arange(len(STATES)).repeat_interleave(per_state)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        x = x * (0.8 + 0.4 * torch.rand(()))
        if torch.rand(()) < 0.5:
            x = -x
        return x.unsqueeze(0), self.y[i]


class WDCNN(nn.Module):
    """Wide first kernel, then a stack of small ones (Zhang et al. 2017)."""

    def __init__(self, classes, base):
        super().__init__()
        def stage(i, o, k, s=1):
            return [nn.Conv1d(i, o, k, s, k // 2), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(2)]
        self.net = nn.Sequential(
            *stage(1, base, 65, 4),
            *stage(base, 2 * base, 7),
            *stage(2 * base, 4 * base, 5),
            *stage(4 * base, 4 * base, 3),
            *stage(4 * base, 4 * base, 3),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(4 * base, 100), nn.ReLU(), nn.Linear(100, classes))

    def forward(self, x):
        return self.net(x)


def confusion(model, loader):
    table = torch.zeros(len(STATES), len(STATES), dtype=torch.long)
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            for truth, guess in zip(y.tolist(), model(x).argmax(1).tolist()):
                table[truth, guess] += 1
    model.train()
    return table


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--per-state", type=int, default=500)
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--base", type=int, default=32)
    p.add_argument("--epochs", type=int, default=120)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--num-workers", type=int, default=0)
    p.add_argument("--eval-every", type=int, default=10)
    return p.parse_args()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    a = parse()
    torch.manual_seed(0)
    train = DataLoader(Vibration(a.per_state, a.length, 0), a.batch, shuffle=True, drop_last=True,
                       num_workers=a.num_workers)
    test = DataLoader(Vibration(20, a.length, 1), a.batch, num_workers=a.num_workers)
    model = WDCNN(len(STATES), a.base)
    opt = torch.optim.Adam(model.parameters(), lr=a.lr)
    loss_fn = nn.CrossEntropyLoss()
    step, t0 = 0, time.time()
    for epoch in range(1, a.epochs + 1):
        for x, y in train:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            opt.step()
            step += 1
            if step % 10 == 0:
                log.info("epoch %d step %d loss %.4f (%.2f steps/s)", epoch, step, loss.item(),
                         step / (time.time() - t0))
        if epoch % a.eval_every == 0:
            table = confusion(model, test)
            log.info("accuracy %.3f", table.diag().sum().item() / table.sum().item())
            for name, row in zip(STATES, table.tolist()):
                log.info("%12s %s", name, row)


if __name__ == "__main__":
    main()
