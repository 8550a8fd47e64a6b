"""Promoter recognition on DNA windows with random mutations and reverse complements.

Windows are cut, mutated and one-hot encoded by a producer thread so that the network never has to wait for data.
"""
import os
import queue
import random
import sys
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS = "ACGT"
COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A"}
WINDOW = 600


def make_genome(path, length=400_000, sites=3000, seed=8):
    r = np.random.default_rng(seed)
    g = r.integers(0, 4, length)
    motif = np.array([LETTERS.index(c) for c in "TATAATGCGTTGACA"])
    starts = np.sort(r.choice(np.arange(WINDOW, length - WINDOW, 120), sites, replace=False))
    for s in starts:
        g[s:s + len(motif)] = motif
    with open(path + ".part", "w") as f:
        f.write("".join(LETTERS[k] for k in g) + "\n" + " ".join(map(str, starts)) + "\n")
    os.replace(path + ".part", path)


class Producer(threading.Thread):
    def __init__(self, path, batch_size, depth=4, mutation=0.02):
        super().__init__(daemon=True)
        with open(path) as f:
            self.genome = f.readline().strip()
            self.sites = [int(s) for s in f.readline().split()]
        self.batch_size, self.mutation = batch_size, mutation
        self.rnd = random.Random(0)
        self.queue = queue.Queue(depth)

    def window(self):
        label = self.rnd.random() < 0.5
        if label:
            start = self.rnd.choice(self.sites) - self.rnd.randrange(20, WINDOW - 40)
        else:
            start = self.rnd.randrange(len(self.genome) - WINDOW)
        start = min(max(start, 0), len(self.genome) - WINDOW)
        return self.genome[start:start + WINDOW], float(label)

    def batch(self):
        rows, labels = [], []
        for _ in range(self.batch_size):
            seq, label = self.window()
            if self.rnd.random() < 0.5:
                seq = "".join(COMPLEMENT[c] for c in reversed(seq))
            channels = [[0.0] * WINDOW for _ in LETTERS]
            for pos, c in enumerate(seq):
                if self.rnd.random() < self.mutation:
                    c = self.rnd.choice(LETTERS)
                channels[LETTERS.index(c)][pos] = 1.0
            rows.append(channels)
            labels.append(label)
        return torch.tensor(rows), torch.tensor(labels)

    def run(self):
        while True:
            self.queue.put(self.batch())


class PromoterNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.scan = nn.Conv1d(4, 32, 15, stride=4, padding=7)
        self.deep = nn.Conv1d(32, 32, 5, padding=2)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        h = F.max_pool1d(F.relu(self.scan(x)), 4)
        h = F.relu(self.deep(h))
        return self.out(h.amax(2)).squeeze(1)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.gettempdir(), "genome_promoters.txt")
    if not os.path.exists(path):
        make_genome(path)
    torch.manual_seed(0)
    producer = Producer(path, batch_size=64)
    producer.start()
    net = PromoterNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    t0, hits, n = time.time(), 0, 0
    for step in range(1, 50_001):
        x, y = producer.queue.get()
        logit = net(x)
        loss = F.binary_cross_entropy_with_logits(logit, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hits += ((logit > 0).float() == y).sum().item()
        n += len(y)
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f} acc {hits / n:.3f} {n / (time.time() - t0):.0f} windows/s", flush=True)


if __name__ == "__main__":
    main()
