"""Next-minute return model for a basket of 24 instruments.

The desk wants to see the live tape while the model is being refitted, so a
small ticker runs next to the training and feeds the status line.
"""
import math
import random
import threading
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = 20240311
N_INSTRUMENTS = 24
N_MINUTES = 40_000
WINDOW = 128
HORIZON = 5
BATCH = 32
EPOCHS = 200
LR = 1e-3


class TapeTicker(threading.Thread):
    """Keeps rolling figures of the simulated tape (last, vwap, realised vol)."""

    def __init__(self, seed, depth=600):
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self.prices = deque([100.0], maxlen=depth)
        self.sizes = deque([1], maxlen=depth)
        self.snapshot = {"last": 100.0, "vwap": 100.0, "vol": 0.0}
        self.halted = threading.Event()

    def tick(self):
        drift = 0.02 * (100.0 - self.prices[-1]) / 100.0
        self.prices.append(self.prices[-1] * math.exp(self.rng.gauss(drift, 3e-4)))
        self.sizes.append(self.rng.randint(1, 50))

    def refresh(self):
        notional = 0.0
        volume = 0
        for p, s in zip(self.prices, self.sizes):
            notional += p * s
            volume += s
        rets = []
        prev = None
        for p in self.prices:
            if prev is not None:
                rets.append(math.log(p / prev))
            prev = p
        mean = sum(rets) / max(len(rets), 1)
        var = sum((r - mean) ** 2 for r in rets) / max(len(rets) - 1, 1)
        self.snapshot = {
            "last": self.prices[-1],
            "vwap": notional / volume,
            "vol": math.sqrt(var),
        }

    def run(self):
        while not self.halted.is_set():
            self.tick()
            self.refresh()

    def line(self):
        s = self.snapshot
        return f"last {s['last']:.3f} vwap {s['vwap']:.3f} vol {s['vol']:.2e}"


def simulate_market(seed):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(N_MINUTES, 3)).astype(np.float32)
    factor[1:] += 0.35 * factor[:-1]
    loadings = rng.normal(scale=0.6, size=(3, N_INSTRUMENTS)).astype(np.float32)
    noise = rng.standard_t(5, size=(N_MINUTES, N_INSTRUMENTS)).astype(np.float32)
    returns = factor @ loadings + 0.8 * noise
    returns[2:] -= 0.15 * returns[:-2]
    return torch.from_numpy(returns / returns.std(axis=0, keepdims=True))


class Windows(Dataset):
    def __init__(self, returns):
        self.returns = returns

    def __len__(self):
        return len(self.returns) - WINDOW - HORIZON

    def __getitem__(self, i):
        past = self.returns[i : i + WINDOW].T
        future = self.returns[i + WINDOW : i + WINDOW + HORIZON].sum(0)
        return past, future


class Block(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(c_in, c_out, 3, dilation=dilation)
        self.skip = nn.Conv1d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x):
        h = self.conv(F.pad(x, (self.pad, 0)))
        return F.relu(h + self.skip(x))


class TCN(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.blocks = nn.Sequential(
            Block(N_INSTRUMENTS, width, 1),
            Block(width, width, 2),
            Block(width, width, 4),
            Block(width, width, 8),
        )
        self.head = nn.Linear(width, N_INSTRUMENTS)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1])


def main():
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)

    returns = simulate_market(SEED)
    loader = DataLoader(Windows(returns), batch_size=BATCH, shuffle=True, drop_last=True)
    model = TCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)

    ticker = TapeTicker(SEED)
    ticker.start()

    step = 0
    started = time.time()
    for epoch in range(EPOCHS):
        running = 0.0
        for past, future in loader:
            loss = F.smooth_l1_loss(model(past), future)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step % 50 == 0:
                print(
                    f"[{time.time() - started:7.1f}s] epoch {epoch} step {step} "
                    f"huber {running / 50:.4f} | {ticker.line()}",
                    flush=True,
                )
                running = 0.0
    ticker.halted.set()
    ticker.join()


if __name__ == "__main__":
    main()
