# click-through model on our ad server logs (public-safe synthetic copy)
# usage: python ctr_crossnet.py
import math
import os
import queue
import random
import tempfile
import threading
import time
import zlib

import numpy as np
import torch
import torch.nn as nn

HOME = os.path.join(tempfile.gettempdir(), "ctr_crossnet")
LOGFILE = os.path.join(HOME, "clicks.log")
FIELDS = ["user", "ad", "site", "slot", "device", "os", "browser", "geo", "lang", "hour", "camp", "adv",
          "fmt", "cat", "ref", "conn", "seg", "brand"]
CARD = [6000, 900, 400, 12, 40, 9, 20, 300, 25, 24, 200, 80, 8, 60, 500, 5, 150, 120]
CROSSES = [("user", "cat"), ("user", "hour"), ("ad", "site"), ("ad", "geo"), ("brand", "seg"), ("site", "slot"),
           ("camp", "device"), ("geo", "lang")]
NUMS = ["bid", "floor", "age", "views", "dwell"]
BUCKETS = 4096
ROWS = 60000
BATCH = 3072
EPOCHS = 400


def write_logs():
    if os.path.exists(LOGFILE):
        return
    os.makedirs(HOME, exist_ok=True)
    rng = np.random.default_rng(5)
    cols = [np.minimum((rng.pareto(1.1, ROWS) * c / 12).astype(int), c - 1) for c in CARD]
    effect = [rng.normal(scale=0.5, size=c) for c in CARD]
    nums = np.exp(rng.normal(size=(ROWS, len(NUMS))))
    logit = sum(e[c] for e, c in zip(effect, cols)) + 0.4 * np.log(nums[:, 0]) - 0.3 * np.log(nums[:, 1]) - 1.2
    y = rng.random(ROWS) < 1 / (1 + np.exp(-logit))
    with open(LOGFILE + ".part", "w") as f:
        for i in range(ROWS):
            kv = [f"{n}={n[:2]}{c[i]}" for n, c in zip(FIELDS, cols)] + [f"{n}={v:.3f}" for n, v in zip(NUMS, nums[i])]
            f.write(f"{1718000000 + i * 3}\t{int(y[i])}\t" + ";".join(kv) + "\n")
    os.rename(LOGFILE + ".part", LOGFILE)


class LogBook:
    """Keeps the log lines and turns some of them into model input."""

    def __init__(self, path):
        with open(path) as f:
            self.lines = f.read().splitlines()
        cut = int(len(self.lines) * 0.95)
        self.n_train = cut
        self.column = {name: i for i, name in enumerate(FIELDS)}
        self.number = {name: i for i, name in enumerate(NUMS)}

    def encode(self, ids):
        cats = [[0] * (len(FIELDS) + len(CROSSES)) for _ in ids]
        nums = [[0.0] * len(NUMS) for _ in ids]
        labels = []
        for row, i in enumerate(ids):
            _, label, payload = self.lines[i].split("\t")
            labels.append(float(label))
            fields = dict(pair.split("=") for pair in payload.split(";"))
            for key, value in fields.items():
                if key in self.column:
                    cats[row][self.column[key]] = zlib.crc32(value.encode()) % BUCKETS
                else:
                    nums[row][self.number[key]] = math.log1p(float(value))
            for c, (a, b) in enumerate(CROSSES, len(FIELDS)):
                cats[row][c] = zlib.crc32(f"{fields[a]}&{fields[b]}".encode()) % BUCKETS
        return np.array(cats), np.array(nums, dtype=np.float32), np.array(labels, dtype=np.float32)

    def batch(self, ids):
        cats, nums, labels = self.encode(ids)
        return torch.from_numpy(cats), torch.from_numpy(nums), torch.from_numpy(labels)


class Feeder(threading.Thread):
    def __init__(self, book, depth=3):
        super().__init__(daemon=True, name="feeder")
        self.book = book
        self.out = queue.Queue(maxsize=depth)
        self.shuffler = random.Random(99)

    def run(self):
        order = list(range(self.book.n_train))
        for _ in range(EPOCHS):
            self.shuffler.shuffle(order)
            for k in range(0, len(order) - BATCH + 1, BATCH):
                self.out.put(self.book.batch(order[k:k + BATCH]))
            self.out.put(None)


class CrossNet(nn.Module):
    def __init__(self, dim=8, layers=2):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(BUCKETS, dim) for _ in FIELDS + CROSSES)
        for t in self.tables:
            nn.init.normal_(t.weight, std=0.02)
        width = dim * len(self.tables) + len(NUMS)
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.deep = nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
        self.out = nn.Linear(width + 64, 1)

    def forward(self, cats, nums):
        parts = [t(cats[:, i]) for i, t in enumerate(self.tables)]
        x0 = torch.cat(parts + [nums], dim=1)
        x = x0
        for layer in self.cross:
            x = x0 * layer(x) + x
        return self.out(torch.cat([x, self.deep(x0)], dim=1)).squeeze(1)


def auc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty_like(order, dtype=torch.float64)
    ranks[order] = torch.arange(1, len(order) + 1, dtype=torch.float64)
    pos = labels.sum().item()
    neg = len(labels) - pos
    return (ranks[labels > 0].sum().item() - pos * (pos + 1) / 2) / (pos * neg)


def main():
    torch.manual_seed(1)
    random.seed(1)
    write_logs()
    book = LogBook(LOGFILE)
    held_out = book.batch(range(book.n_train, len(book.lines)))
    model = CrossNet()
    ema = {k: v.clone() for k, v in model.state_dict().items()}
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    lossfn = nn.BCEWithLogitsLoss()
    feeder = Feeder(book)
    feeder.start()
    t0 = time.time()
    n = 0
    for epoch in range(EPOCHS):
        running = 0.0
        while True:
            item = feeder.out.get()
            if item is None:
                break
            cats, nums, y = item
            opt.zero_grad()
            loss = lossfn(model(cats, nums), y)
            loss.backward()
            total = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            opt.step()
            running = 0.98 * running + 0.02 * loss.item() if running else loss.item()
            n += 1
            if n % 15 == 0:
                print(f"[{time.time() - t0:7.1f}s] ep {epoch} it {n} loss {running:.4f} |g| {total:.3f}", flush=True)
        with torch.no_grad():
            for k, v in model.state_dict().items():
                ema[k].lerp_(v, 0.3)
            if epoch % 5 == 0:
                print(f"epoch {epoch}: held-out AUC {auc(model(*held_out[:2]), held_out[2]):.4f}", flush=True)


if __name__ == "__main__":
    main()
