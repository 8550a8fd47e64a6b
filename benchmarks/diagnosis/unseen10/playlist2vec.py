#!/usr/bin/env python
"""Skip-gram with negative sampling over radio playlists.

A PyTorch port of my old C code (itself a port of word2vec.c). Plain SGD with a
linearly falling rate as in the original; no momentum, no decay.
"""
import argparse
import logging
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("playlist2vec")


def parse(argv=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tracks", type=int, default=130_000)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--negative", type=int, default=5)
    ap.add_argument("--window", type=int, default=4)
    ap.add_argument("--batch", type=int, default=4096)
    ap.add_argument("--alpha", type=float, default=0.025, help="starting rate, per pair")
    ap.add_argument("--iter", type=int, default=200)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--report", type=int, default=50)
    ap.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "playlist2vec")
    return ap.parse_args(argv)


def build_corpus(a):
    """Sessions wander between genres; popularity inside a genre is Zipfian."""
    f = a.folder / f"sessions_{a.tracks}.npz"
    if f.exists():
        z = np.load(f)
        return z["tracks"], z["bounds"]
    a.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(a.seed)
    n_genres, n_sessions = 500, 60_000
    per = a.tracks // n_genres
    rank = np.minimum(rng.zipf(1.25, size=n_sessions * 40) - 1, 10 ** 9) % per
    lens = rng.integers(8, 40, n_sessions)
    bounds = np.concatenate([[0], np.cumsum(lens)])
    home = rng.integers(0, n_genres, n_sessions)
    genre = np.repeat(home, lens)
    stray = rng.random(len(genre)) < 0.1
    genre[stray] = rng.integers(0, n_genres, stray.sum())
    tracks = (genre * per + rank[:len(genre)]).astype(np.int32)
    np.savez(f, tracks=tracks, bounds=bounds)
    return tracks, bounds


class PairStream:
    def __init__(self, tracks, bounds, a):
        self.t = tracks
        self.session = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)).astype(np.int32)
        self.rng = np.random.default_rng(a.seed + 1)
        self.a = a
        counts = np.bincount(tracks, minlength=a.tracks).astype(np.float64)
        noise = counts ** 0.75
        # alias table would be nicer; a quantised unigram table is what the C code has
        self.table = np.repeat(np.arange(a.tracks, dtype=np.int32), np.ceil(noise / noise.sum() * 4_000_000).astype(int))

    def __len__(self):
        return len(self.t) // self.a.batch

    def __iter__(self):
        n, a = len(self.t), self.a
        order = self.rng.permutation(n)
        for k in range(len(self)):
            c = order[k * a.batch:(k + 1) * a.batch]
            off = self.rng.integers(1, a.window + 1, len(c)) * self.rng.choice([-1, 1], len(c))
            o = np.clip(c + off, 0, n - 1)
            same = self.session[c] == self.session[o]
            o = np.where(same, o, c)
            neg = self.table[self.rng.integers(0, len(self.table), (len(c), a.negative))]
            yield (torch.from_numpy(self.t[c].astype(np.int64)), torch.from_numpy(self.t[o].astype(np.int64)),
                   torch.from_numpy(neg.astype(np.int64)))


class SkipGram(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.syn0 = nn.Embedding(n, dim)
        self.syn1 = nn.Embedding(n, dim)
        nn.init.uniform_(self.syn0.weight, -0.5 / dim, 0.5 / dim)
        nn.init.normal_(self.syn1.weight, std=0.01)

    def forward(self, centre, context, negative):
        c = self.syn0(centre)
        pos = (c * self.syn1(context)).sum(-1)
        neg = torch.bmm(self.syn1(negative), c.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos).sum() + F.logsigmoid(-neg).sum())


@torch.inference_mode()
def neighbours(model, track, k=5):
    w = model.syn0.weight
    sims = F.cosine_similarity(w, w[track][None])
    return sims.topk(k + 1).indices.tolist()[1:]


def train(a):
    torch.manual_seed(a.seed)
    tracks, bounds = build_corpus(a)
    log.info("%d plays in %d sessions", len(tracks), len(bounds) - 1)
    stream = PairStream(tracks, bounds, a)
    model = SkipGram(a.tracks, a.dim)
    opt = torch.optim.SGD(model.parameters(), lr=a.alpha)
    total = a.iter * len(stream)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(1e-4, 1 - s / total))
    done, ema, began = 0, None, time.time()
    for epoch in range(a.iter):
        for centre, context, negative in stream:
            opt.zero_grad()
            loss = model(centre, context, negative)
            loss.backward()
            opt.step()
            sched.step()
            done += 1
            per_pair = loss.item() / len(centre)
            ema = per_pair if ema is None else 0.98 * ema + 0.02 * per_pair
            if done % a.report == 0:
                log.info("alpha %.5f  progress %.2f%%  loss %.4f  pairs/s %.0f", sched.get_last_lr()[0],
                         100 * done / total, ema, done * a.batch / (time.time() - began))
        log.info("epoch %d: near track 0: %s", epoch, neighbours(model, 0))


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    train(parse())
