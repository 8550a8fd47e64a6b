import collections
import os
import queue
import sys
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn


def substation_series(n_sub=60, hours=24 * 365):
    """Hourly load of a set of substations, made once and kept on disk."""
    home = os.path.join(tempfile.gettempdir(), "load_forecaster")
    fn = os.path.join(home, "load.npy")
    if os.path.exists(fn):
        return np.load(fn)
    os.makedirs(home, exist_ok=True)
    rng = np.random.default_rng(17)
    t = np.arange(hours)
    out = np.empty((n_sub, hours), np.float32)
    for s in range(n_sub):
        daily = rng.uniform(0.5, 1.5) * np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6))
        weekly = rng.uniform(0.2, 0.8) * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6))
        yearly = rng.uniform(0.2, 1.0) * np.cos(2 * np.pi * t / 8760)
        ar = np.zeros(hours)
        e = rng.normal(0, 0.15, hours)
        for k in range(1, hours):
            ar[k] = 0.9 * ar[k - 1] + e[k]
        out[s] = 5 + daily + weekly + yearly + ar
    np.save(fn, out)
    return out


class Windows:
    def __init__(self, series, history, horizon, seed):
        self.mean = series.mean(1, keepdims=True)
        self.std = series.std(1, keepdims=True)
        self.series = (series - self.mean) / self.std
        self.history, self.horizon = history, horizon
        self.rng = np.random.default_rng(seed)
        hour = np.arange(series.shape[1])
        self.clock = np.stack([np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24),
                               np.sin(2 * np.pi * hour / 168), np.cos(2 * np.pi * hour / 168)], 1).astype(np.float32)

    def batch(self, size):
        total = self.history + self.horizon
        subs = self.rng.integers(0, len(self.series), size)
        starts = self.rng.integers(0, self.series.shape[1] - total, size)
        idx = starts[:, None] + np.arange(total)
        values = self.series[subs[:, None], idx]
        clock = self.clock[idx]
        x = np.concatenate([values[:, :self.history, None], clock[:, :self.history]], axis=2)
        return torch.from_numpy(x), torch.from_numpy(values[:, self.history:]), torch.from_numpy(subs)


class Feeder(threading.Thread):
    """Prepares batches in the background so that the trainer never has to build one."""

    def __init__(self, windows, batch_size, depth=2):
        super().__init__(daemon=True)
        self.windows = windows
        self.batch_size = batch_size
        self.ready = queue.Queue()
        self.depth = depth
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.is_set():
            if self.ready.qsize() >= self.depth:
                time.sleep(0.7)
                continue
            self.ready.put(self.windows.batch(self.batch_size))

    def next(self):
        return self.ready.get()


class Block(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.conv = nn.Conv1d(ch, 2 * ch, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, dim=1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class Forecaster(nn.Module):
    def __init__(self, n_sub, horizon, ch=48):
        super().__init__()
        self.inp = nn.Conv1d(5, ch, 1)
        self.sub = nn.Embedding(n_sub, ch)
        self.blocks = nn.ModuleList([Block(ch, 2 ** i) for i in range(6)])
        self.out = nn.Sequential(nn.Linear(2 * ch, 128), nn.GELU(), nn.Linear(128, horizon))

    def forward(self, x, subs):
        h = self.inp(x.transpose(1, 2)) + self.sub(subs)[:, :, None]
        for b in self.blocks:
            h = b(h)
        return self.out(torch.cat([h[:, :, -1], h.mean(2)], 1))


class Trainer:
    def __init__(self):
        torch.manual_seed(8)
        series = substation_series()
        self.history, self.horizon, self.batch_size = 168, 24, 64
        self.feeder = Feeder(Windows(series, self.history, self.horizon, seed=8), self.batch_size)
        self.model = Forecaster(len(series), self.horizon)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.window = collections.deque(maxlen=50)
        self.steps_per_epoch = 200
        self.ema = {k: v.clone() for k, v in self.model.state_dict().items()}

    def step(self):
        x, y, subs = self.feeder.next()
        pred = self.model(x, subs)
        loss = nn.functional.smooth_l1_loss(pred, y)
        self.optim.zero_grad()
        loss.backward()
        grad = nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optim.step()
        with torch.no_grad():
            for k, v in self.model.state_dict().items():
                self.ema[k].lerp_(v, 0.01)
        return loss.item(), float(grad)

    def train(self, epochs):
        self.feeder.start()
        try:
            for epoch in range(epochs):
                t = time.monotonic()
                for i in range(self.steps_per_epoch):
                    loss, grad = self.step()
                    self.window.append(loss)
                    if i % 40 == 39:
                        sys.stdout.write("epoch %3d  step %4d  loss %.4f  grad %.2f\n"
                                         % (epoch, i + 1, sum(self.window) / len(self.window), grad))
                        sys.stdout.flush()
                print("epoch %d took %.1f s" % (epoch, time.monotonic() - t))
        finally:
            self.feeder.stopped.set()


if __name__ == "__main__":
    Trainer().train(epochs=500)
