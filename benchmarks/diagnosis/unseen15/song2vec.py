#!/usr/bin/env python3
"""song2vec: skip-gram with negative sampling on radio playlists.

Every playlist is a "sentence", every song a "word". The learned vectors go
into the nearest-neighbour index of the recommender.
"""
import json
import logging
import pathlib
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("song2vec")

CFG = {
    "n_songs": 80_000,
    "n_playlists": 30_000,
    "n_genres": 40,
    "window": 3,
    "dim": 64,
    "negatives": 5,
    "batch_size": 1024,
    "lr": 2e-3,
    "epochs": 3,
    "log_every": 25,
    "seed": 11,
}
ROOT = pathlib.Path(tempfile.gettempdir()) / "song2vec"


def make_playlists(cfg):
    """Playlists mostly stay within one genre, popularity is zipf-like."""
    rng = np.random.default_rng(cfg["seed"])
    per_genre = cfg["n_songs"] // cfg["n_genres"]
    popularity = 1.0 / (np.arange(per_genre) + 10.0)
    popularity /= popularity.sum()
    lengths = rng.integers(10, 30, cfg["n_playlists"])
    genre = rng.integers(0, cfg["n_genres"], cfg["n_playlists"])
    g = np.repeat(genre, lengths)
    stray = rng.random(len(g)) < 0.1
    g[stray] = rng.integers(0, cfg["n_genres"], stray.sum())
    songs = g * per_genre + rng.choice(per_genre, len(g), p=popularity)
    return songs.astype(np.int32), lengths.astype(np.int32)


def load_playlists(cfg):
    ROOT.mkdir(exist_ok=True)
    path = ROOT / "playlists.npz"
    if not path.exists():
        songs, lengths = make_playlists(cfg)
        np.savez(path, songs=songs, lengths=lengths)
    z = np.load(path)
    return z["songs"].astype(np.int64), z["lengths"].astype(np.int64)


def skipgram_pairs(songs, lengths, window):
    owner = np.repeat(np.arange(len(lengths)), lengths)
    centers, contexts = [], []
    for d in range(1, window + 1):
        same = owner[d:] == owner[:-d]
        a, b = songs[:-d][same], songs[d:][same]
        centers += [a, b]
        contexts += [b, a]
    return torch.from_numpy(np.concatenate(centers)), torch.from_numpy(np.concatenate(contexts))


class NegativeSampler:
    """Draws songs from the unigram distribution ** 0.75 using a lookup table."""

    def __init__(self, songs, n_songs, table_size=2_000_000):
        counts = np.bincount(songs, minlength=n_songs).astype(np.float64) ** 0.75
        slots = np.round(counts / counts.sum() * table_size).astype(np.int64)
        self.table = torch.from_numpy(np.repeat(np.arange(n_songs), slots))

    def __call__(self, *shape):
        return self.table[torch.randint(len(self.table), shape)]


class Song2Vec(nn.Module):
    def __init__(self, n_songs, dim):
        super().__init__()
        self.center = nn.Embedding(n_songs, dim)
        self.context = nn.Embedding(n_songs, dim)
        nn.init.uniform_(self.center.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    def forward(self, c, pos, neg):
        v = self.center(c)
        pos_score = (v * self.context(pos)).sum(-1)
        neg_score = torch.einsum("bd,bkd->bk", v, self.context(neg))
        return -(F.logsigmoid(pos_score) + F.logsigmoid(-neg_score).sum(-1)).mean()

    def most_similar(self, song, k=5):
        w = F.normalize(self.center.weight.detach(), dim=1)
        return (w @ w[song]).topk(k + 1).indices[1:].tolist()


def genre_precision(model, cfg, songs):
    per_genre = cfg["n_songs"] // cfg["n_genres"]
    hits = 0
    for s in songs:
        hits += sum(n // per_genre == s // per_genre for n in model.most_similar(s))
    return hits / (5 * len(songs))


def main(cfg):
    torch.manual_seed(cfg["seed"])
    songs, lengths = load_playlists(cfg)
    centers, contexts = skipgram_pairs(songs, lengths, cfg["window"])
    log.info("%d plays, %d pairs", len(songs), len(centers))

    sampler = NegativeSampler(songs, cfg["n_songs"])
    model = Song2Vec(cfg["n_songs"], cfg["dim"])
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    probe = np.bincount(songs).argsort()[::-1][:20].tolist()

    history = []
    for epoch in range(cfg["epochs"]):
        order = torch.randperm(len(centers))
        running = 0.0
        for step, idx in enumerate(order.split(cfg["batch_size"]), 1):
            c, pos = centers[idx], contexts[idx]
            neg = sampler(len(idx), cfg["negatives"])
            loss = model(c, pos, neg)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            if step % cfg["log_every"] == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, running / cfg["log_every"])
                history.append({"epoch": epoch, "step": step, "loss": running / cfg["log_every"]})
                running = 0.0
        log.info("epoch %d: genre precision@5 of the top songs %.3f", epoch, genre_precision(model, cfg, probe))

    (ROOT / "history.json").write_text(json.dumps(history))
    np.save(ROOT / "vectors.npy", model.center.weight.detach().numpy())


if __name__ == "__main__":
    main(CFG)
