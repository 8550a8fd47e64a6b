"""
mixtape_sgns: skip-gram with negative sampling on music playlists, the short version.
Every playlist is a "sentence", every track a "word".
"""
import os
import tempfile
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F

N_TRACKS = 5000
N_PLAYLISTS = 6000
DIM = 256
WINDOW = 4
NEG = 10
BATCH = 512
HERE = os.path.join(tempfile.gettempdir(), "mixtape_sgns")

np.random.seed(1234)
torch.manual_seed(1234)


def make_playlists():
    """Tracks belong to 100 scenes; a playlist stays mostly in one or two of them."""
    file = os.path.join(HERE, "playlists.npz")
    if os.path.exists(file):
        z = np.load(file)
        return np.split(z["flat"], z["cuts"])
    os.makedirs(HERE, exist_ok=True)
    rng = np.random.default_rng(5)
    scene_of = rng.integers(0, 100, N_TRACKS)
    members = [np.where(scene_of == s)[0] for s in range(100)]
    lists = []
    for _ in range(N_PLAYLISTS):
        a, b = rng.integers(0, 100, 2)
        pool = np.concatenate([members[a], members[b][:40]])
        n = rng.integers(12, 60)
        rank = np.minimum(rng.zipf(1.35, n) - 1, len(pool) - 1)
        lists.append(pool[rank])
    flat = np.concatenate(lists).astype(np.int64)
    cuts = np.cumsum([len(p) for p in lists])[:-1]
    np.savez(file, flat=flat, cuts=cuts)
    return np.split(flat, cuts)


playlists = make_playlists()

# unigram distribution to the power of 3/4, as in the paper
counts = np.bincount(np.concatenate(playlists), minlength=N_TRACKS).astype(np.float64) + 1
noise = counts ** 0.75
noise /= noise.sum()

# how likely is a track kept? (subsampling of hits)
freq = counts / counts.sum()
keep_prob = np.minimum(1.0, np.sqrt(5e-3 / freq))


def training_pairs():
    """All (center, context) pairs of one epoch in random order."""
    centers, contexts = [], []
    for p in playlists:
        p = p[np.random.random(len(p)) < keep_prob[p]]
        for off in range(1, WINDOW + 1):
            if len(p) <= off:
                break
            centers += [p[:-off], p[off:]]
            contexts += [p[off:], p[:-off]]
    centers, contexts = np.concatenate(centers), np.concatenate(contexts)
    order = np.random.permutation(len(centers))
    return centers[order], contexts[order]


def draw_noise():
    return np.random.choice(N_TRACKS, size=NEG, p=noise)


def batches():
    c, o = training_pairs()
    for i in range(0, len(c) - BATCH, BATCH):
        center, context = c[i:i + BATCH], o[i:i + BATCH]
        negatives = np.stack([draw_noise() for _ in center])
        yield torch.from_numpy(center), torch.from_numpy(context), torch.from_numpy(negatives)


class SkipGram(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = torch.nn.Embedding(N_TRACKS, DIM, sparse=True)
        self.out = torch.nn.Embedding(N_TRACKS, DIM, sparse=True)
        torch.nn.init.uniform_(self.inp.weight, -0.5 / DIM, 0.5 / DIM)
        torch.nn.init.zeros_(self.out.weight)

    def forward(self, center, context, negatives):
        v = self.inp(center)                        # B x D
        candidates = torch.cat([context[:, None], negatives], dim=1)
        u = self.out(candidates)                    # B x (1+K) x D
        score = torch.bmm(u, v.unsqueeze(2)).squeeze(2)
        pos = F.logsigmoid(score[:, 0])
        neg = F.logsigmoid(-score[:, 1:]).sum(dim=1)
        return -(pos + neg).mean()


def neighbours(model, track, k=5):
    w = F.normalize(model.inp.weight.detach(), dim=1)
    return (w @ w[track]).topk(k + 1).indices[1:].tolist()


def train(epochs=100):
    model = SkipGram()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    n = 0
    for epoch in range(epochs):
        start = perf_counter()
        total = torch.zeros(())
        for center, context, negatives in batches():
            loss = model(center, context, negatives)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            n += 1
            if n % 50 == 0:
                print(f"[{epoch}] step {n:6d}  loss {total.item() / 50:.4f}  ({perf_counter() - start:.1f}s)", flush=True)
                total.zero_()
        top = int(counts.argmax())
        print("neighbours of the biggest hit:", neighbours(model, top))


if __name__ == "__main__":
    train()
