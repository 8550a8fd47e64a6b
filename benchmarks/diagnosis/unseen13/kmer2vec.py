#!/usr/bin/env python3
# kmer2vec.py -- skip-gram embeddings of genomic k-mers
# usage: python kmer2vec.py [-k 8] [-d 100]
import argparse
import os
import random
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

OUT = os.path.join(tempfile.gettempdir(), "kmer2vec")
CODE = {"A": 0, "C": 1, "G": 2, "T": 3}


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("-k", type=int, default=8)
    p.add_argument("-d", "--dim", type=int, default=100)
    p.add_argument("-w", "--window", type=int, default=4)
    p.add_argument("-n", "--negatives", type=int, default=5)
    p.add_argument("-b", "--batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("-t", "--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=2500)
    return p.parse_args()


def write_fasta(path, n_contigs=40, length=25000):
    """fake contigs with repeats, so that there is some structure to learn"""
    random.seed(11)
    repeats = ["".join(random.choices("ACGT", k=random.randint(80, 300))) for _ in range(60)]
    with open(path + ".tmp", "w") as fh:
        for c in range(n_contigs):
            gc = random.uniform(0.3, 0.6)
            w = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
            parts, n = [], 0
            while n < length:
                if random.random() < 0.4:
                    s = random.choice(repeats)
                else:
                    s = "".join(random.choices("ACGT", weights=w, k=200))
                parts.append(s)
                n += len(s)
            seq = "".join(parts)[:length]
            fh.write(f">contig_{c} gc={gc:.2f}\n")
            for i in range(0, length, 60):
                fh.write(seq[i:i + 60] + "\n")
    os.rename(path + ".tmp", path)


def read_fasta(path):
    name, seq = None, []
    for line in open(path):
        line = line.strip()
        if line.startswith(">"):
            if name is not None:
                yield name, "".join(seq)
            name, seq = line[1:].split()[0], []
        else:
            seq.append(line)
    yield name, "".join(seq)


def kmer_ids(seq, k):
    """4-letter code, rolling"""
    mask = 4 ** k - 1
    ids, v = [], 0
    for i, c in enumerate(seq):
        v = ((v << 2) | CODE[c]) & mask
        if i >= k - 1:
            ids.append(v)
    return np.array(ids)


class SkipGram(nn.Module):
    def __init__(self, n_kmers, dim):
        super().__init__()
        self.center = nn.Embedding(n_kmers, dim)
        self.context = nn.Embedding(n_kmers, dim)
        nn.init.uniform_(self.center.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    def forward(self, c, pos, neg):
        v = self.center(c)                                    # B, D
        u = self.context(pos)                                 # B, D
        n = self.context(neg)                                 # B, K, D
        s_pos = (v * u).sum(-1)
        s_neg = torch.bmm(n, v.unsqueeze(-1)).squeeze(-1)
        return -(F.logsigmoid(s_pos) + F.logsigmoid(-s_neg).sum(-1)).mean()


def main():
    a = get_args()
    os.makedirs(OUT, exist_ok=True)
    fasta = os.path.join(OUT, "contigs.fa")
    if not os.path.exists(fasta):
        write_fasta(fasta)

    contigs = [kmer_ids(s, a.k) for _, s in read_fasta(fasta)]
    n_kmers = 4 ** a.k
    print("contigs:", len(contigs), " possible k-mers:", n_kmers, file=sys.stderr)

    # unigram^0.75 for the negatives
    counts = np.bincount(np.concatenate(contigs), minlength=n_kmers)
    p = counts ** 0.75
    cdf = np.cumsum(p / p.sum())

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = SkipGram(n_kmers, a.dim)
    optim = torch.optim.Adagrad(model.parameters(), lr=a.lr)

    running, t0 = 0.0, time.time()
    for step in range(1, a.steps + 1):
        ids = contigs[rng.integers(len(contigs))]
        i = rng.integers(a.window, len(ids) - a.window, a.batch)
        off = rng.integers(1, a.window + 1, a.batch) * rng.choice([-1, 1], a.batch)
        neg = np.searchsorted(cdf, rng.random((a.batch, a.negatives)))
        neg = np.minimum(neg, n_kmers - 1)

        loss = model(torch.from_numpy(ids[i]), torch.from_numpy(ids[i + off]), torch.from_numpy(neg))
        optim.zero_grad()
        loss.backward()
        optim.step()

        running += loss.item()
        if step % 50 == 0:
            print(f"{step}\tloss {running / 50:.4f}\t{50 / (time.time() - t0):.1f} it/s", flush=True)
            running, t0 = 0.0, time.time()

    np.save(os.path.join(OUT, "kmer_vectors.npy"), model.center.weight.detach().numpy())


if __name__ == "__main__":
    main()
