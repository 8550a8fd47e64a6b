"""Learn to order cities by imitation: a heuristic keeps solving new instances while the network trains on a replay pool."""
import argparse
import os
import queue
import random
import tempfile
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    cities: int = 40
    width: int = 48
    heads: int = 4
    layers: int = 2
    batch_size: int = 24
    pool_size: int = 256
    fresh_per_step: int = 4
    lr: float = 5e-4
    iterations: int = 20000
    log_interval: int = 10
    seed: int = 0


def tour_length(dist, tour):
    return sum(dist[a][b] for a, b in zip(tour, tour[1:] + tour[:1]))


def two_opt(dist, tour):
    n = len(tour)
    improved = True
    while improved:
        improved = False
        for i in range(n - 2):
            a, b = tour[i], tour[i + 1]
            for j in range(i + 2, n - (i == 0)):
                c, d = tour[j], tour[(j + 1) % n]
                if dist[a][c] + dist[b][d] < dist[a][b] + dist[c][d] - 1e-9:
                    tour[i + 1:j + 1] = reversed(tour[i + 1:j + 1])
                    b = tour[i + 1]
                    improved = True
    return tour


def solve(points, restarts=32):
    """Nearest neighbour from many starts, each improved by 2-opt."""
    n = len(points)
    dist = [[((ax - bx) ** 2 + (ay - by) ** 2) ** 0.5 for bx, by in points] for ax, ay in points]
    best, best_length = None, float("inf")
    for start in random.sample(range(n), restarts):
        tour, left = [start], set(range(n)) - {start}
        while left:
            last = dist[tour[-1]]
            nearest = min(left, key=last.__getitem__)
            tour.append(nearest)
            left.remove(nearest)
        tour = two_opt(dist, tour)
        length = tour_length(dist, tour)
        if length < best_length:
            best, best_length = tour, length
    zero = best.index(0)
    best = best[zero:] + best[:zero]
    return best if best[1] < best[-1] else best[:1] + best[:0:-1]


def make_example(cities):
    points = [(random.random(), random.random()) for _ in range(cities)]
    tour = solve(points)
    return np.asarray(points, dtype=np.float32)[tour]


def teacher(out, cities, seed):
    random.seed(seed)
    while True:
        out.put(make_example(cities))


class ReplayPool:
    """Ring buffer of solved instances, cities stored in the order of the tour."""

    def __init__(self, cfg, root):
        path = os.path.join(root, f"pool_{cfg.cities}_{cfg.pool_size}.npy")
        if not os.path.exists(path):
            os.makedirs(root, exist_ok=True)
            random.seed(cfg.seed)
            np.save(path + ".tmp.npy", np.stack([make_example(cfg.cities) for _ in range(cfg.pool_size)]))
            os.replace(path + ".tmp.npy", path)
        self.data = np.load(path)
        self.cursor = 0
        self.added = 0

    def add(self, example):
        self.data[self.cursor] = example
        self.cursor = (self.cursor + 1) % len(self.data)
        self.added += 1

    def sample(self, rng, size):
        return torch.from_numpy(self.data[rng.integers(0, len(self.data), size)])


class NextCityPolicy(nn.Module):
    """Scores, for each prefix of a tour, which city comes next."""

    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(2, cfg.width)
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, 2 * cfg.width, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.query = nn.Linear(3 * cfg.width, cfg.width)
        self.key = nn.Linear(cfg.width, cfg.width)
        n = cfg.cities
        self.register_buffer("visited", torch.ones(n - 1, n, dtype=torch.bool).tril())
        self.register_buffer("target", torch.arange(1, n))

    def forward(self, points):
        h = self.encoder(self.inp(points))
        context = torch.cat([h[:, :-1], h[:, :1].expand(-1, h.shape[1] - 1, -1),
                             h.mean(1, keepdim=True).expand(-1, h.shape[1] - 1, -1)], dim=-1)
        scores = self.query(context) @ self.key(h).transpose(1, 2) / h.shape[-1] ** 0.5
        return scores.masked_fill(self.visited, -1e9)


class Learner:
    def __init__(self, cfg, pool, inbox):
        self.cfg, self.pool, self.inbox = cfg, pool, inbox
        self.rng = np.random.default_rng(cfg.seed)
        self.policy = NextCityPolicy(cfg)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=cfg.lr)

    def refresh(self):
        for _ in range(self.cfg.fresh_per_step):
            try:
                self.pool.add(self.inbox.get_nowait())
            except queue.Empty:
                return

    def update(self):
        self.refresh()
        points = self.pool.sample(self.rng, self.cfg.batch_size)
        logits = self.policy(points)
        target = self.policy.target.expand(len(points), -1)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Config()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    cfg = Config(**vars(parser.parse_args()))
    torch.manual_seed(cfg.seed)
    pool = ReplayPool(cfg, os.path.join(tempfile.gettempdir(), "tour_imitation"))
    inbox = queue.Queue(maxsize=16)
    worker = threading.Thread(target=teacher, args=(inbox, cfg.cities, cfg.seed + 1), daemon=True)
    worker.start()
    learner = Learner(cfg, pool, inbox)
    start, total = time.time(), torch.zeros(())
    for iteration in range(1, cfg.iterations + 1):
        total += learner.update()
        if iteration % cfg.log_interval == 0:
            print(f"iter {iteration:6d}  loss {total.item() / cfg.log_interval:.4f}  fresh {pool.added}  "
                  f"{iteration / (time.time() - start):.1f} it/s", flush=True)
            total.zero_()


if __name__ == "__main__":
    main()
