"""Click model for the display-ads ranker (two hashed feature groups + dense context).

The hashing trick keeps the vocabulary bounded, see HashSpace. Adagrad is what the
serving team validated for this model family, so stick with it.
"""
import argparse
import contextlib
import os
import tempfile
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import nn


class HashSpace(NamedTuple):
    name: str
    buckets: int
    dim: int


SPACES = [
    HashSpace("user", 400_000, 16),
    HashSpace("creative", 60_000, 16),
    HashSpace("placement", 20_000, 16),
]
N_DENSE = 13
DATA_DIR = os.path.join(tempfile.gettempdir(), "banner_ctr")


def impressions(n=600_000, seed=5):
    """Impression log as memory-mapped arrays: ids (n, spaces), dense (n, 13), click (n,)."""
    done = os.path.join(DATA_DIR, "done")
    names = {k: os.path.join(DATA_DIR, k + ".npy") for k in ("ids", "dense", "click")}
    if not os.path.exists(done):
        os.makedirs(DATA_DIR, exist_ok=True)
        rng = np.random.default_rng(seed)
        ids = np.stack([(rng.pareto(1.1, n) * s.buckets / 50).astype(np.int64) % s.buckets for s in SPACES], 1)
        dense = rng.standard_normal((n, N_DENSE), dtype=np.float32)
        bias = [rng.normal(scale=0.7, size=s.buckets) for s in SPACES]
        z = -2.2 + sum(b[ids[:, i]] for i, b in enumerate(bias)) + 0.4 * dense[:, 0]
        np.save(names["ids"], ids)
        np.save(names["dense"], dense)
        np.save(names["click"], (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.float32))
        open(done, "w").close()
    return {k: torch.from_numpy(np.load(v)) for k, v in names.items()}


class BatchStream:
    """Shuffles once per pass and hands out whole batches (much quicker than row-wise)."""

    def __init__(self, arrays, batch_size, generator):
        self.arrays, self.batch_size, self.generator = arrays, batch_size, generator
        self.n = len(arrays["click"])

    def __iter__(self):
        order = torch.randperm(self.n, generator=self.generator)
        for chunk in order.split(self.batch_size):
            yield {k: v[chunk] for k, v in self.arrays.items()}


class HashedEmbeddings(nn.Module):
    def __init__(self, spaces):
        super().__init__()
        self.tables = nn.ModuleDict()
        for s in spaces:
            self.tables[s.name] = nn.Embedding(s.buckets, s.dim)
            nn.init.normal_(self.tables[s.name].weight, std=0.02)

    def forward(self, ids):
        return [table(ids[:, i]) for i, table in enumerate(self.tables.values())]


class PairwiseInteraction(nn.Module):
    """DLRM style dot products between all feature vectors."""

    def __init__(self, n):
        super().__init__()
        i, j = torch.triu_indices(n, n, offset=1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, vectors):
        v = torch.stack(vectors, 1)
        return torch.bmm(v, v.transpose(1, 2))[:, self.i, self.j]


class ClickModel(nn.Module):
    def __init__(self, spaces, n_dense):
        super().__init__()
        dim, n = spaces[0].dim, len(spaces) + 1
        self.embeddings = HashedEmbeddings(spaces)
        self.bottom = nn.Sequential(nn.Linear(n_dense, 64), nn.ReLU(), nn.Linear(64, dim))
        self.interact = PairwiseInteraction(n)
        self.top = nn.Sequential(nn.Linear(n * dim + n * (n - 1) // 2, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, ids, dense):
        vectors = [self.bottom(dense)] + self.embeddings(ids)
        return self.top(torch.cat(vectors + [self.interact(vectors)], 1)).squeeze(1)


class Meter:
    def __init__(self):
        self.total = self.count = 0

    def add(self, value):
        self.total += value
        self.count += 1

    def pop(self):
        mean = self.total / max(1, self.count)
        self.total = self.count = 0
        return mean


@contextlib.contextmanager
def stage(name):
    t = time.perf_counter()
    print(f"-> {name}", flush=True)
    yield
    print(f"<- {name} ({time.perf_counter() - t:.1f}s)", flush=True)


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--passes", type=int, default=8)
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args(argv)
    torch.manual_seed(9)
    with stage("impressions"):
        stream = BatchStream(impressions(), a.batch, torch.Generator().manual_seed(9))
    model = ClickModel(SPACES, N_DENSE)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=a.lr, initial_accumulator_value=0.1)
    logloss, step, t0 = Meter(), 0, time.perf_counter()
    for n in range(a.passes):
        with stage(f"pass {n}"):
            for batch in stream:
                loss = nn.functional.binary_cross_entropy_with_logits(
                    model(batch["ids"], batch["dense"]), batch["click"]
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                logloss.add(loss.item())
                step += 1
                if step % 50 == 0:
                    rate = step * a.batch / (time.perf_counter() - t0)
                    print(f"   {step:6d} logloss {logloss.pop():.4f}  {rate:,.0f} impressions/s", flush=True)


if __name__ == "__main__":
    main()
