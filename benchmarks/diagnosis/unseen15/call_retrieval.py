#!/usr/bin/env python
# Embeddings of bird calls for the retrieval page of the field station.
# Batches are P species x K clips. Since March the batch is built around a random anchor species
# and the species most easily mixed up with it; since May hard clips are preferred inside a species.
import argparse
import os
import tempfile
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default=os.path.join(tempfile.gettempdir(), "call_retrieval"))
    ap.add_argument("--species", type=int, default=80)
    ap.add_argument("--clips", type=int, default=100, help="clips per species")
    ap.add_argument("-P", type=int, default=8)
    ap.add_argument("-K", type=int, default=4)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--margin", type=float, default=0.2)
    ap.add_argument("--workers", type=int, default=0)
    ap.add_argument("--threads", type=int, default=1, help="the station PC also records")
    return ap.parse_args()


def synth(root, n_species, n_clips):
    """Mel patches, 48 bands x 64 frames: a few chirps for each species, with jitter."""
    path = os.path.join(root, f"mels_{n_species}_{n_clips}.npy")
    labels = np.repeat(np.arange(n_species), n_clips)
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        g = np.random.default_rng(3)
        bands = np.arange(48)[:, None]
        t = np.arange(64)[None]
        mels = np.empty((len(labels), 48, 64), np.float16)
        for s in range(n_species):
            chirps = g.uniform([5, -0.3, 0, 1.5], [43, 0.3, 40, 4], (3, 4))
            for k in range(n_clips):
                m = g.normal(0, 0.3, (48, 64))
                for f0, slope, start, width in chirps + g.normal(0, [1.5, 0.03, 3, 0.2], (3, 4)):
                    tt = t - start
                    m += np.exp(-((bands - f0 - slope * tt) / width) ** 2) * ((tt > 0) & (tt < 24))
                mels[s * n_clips + k] = m
        np.save(path, mels)
    return np.load(path), labels


class Clips(Dataset):
    def __init__(self, mels, labels):
        self.mels, self.labels = mels, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = torch.from_numpy(self.mels[i].astype(np.float32))
        x = torch.roll(x, np.random.randint(-4, 5), dims=1)
        f = np.random.randint(0, 44)
        x[f:f + 4] = 0  # SpecAugment, one band
        return x[None], int(self.labels[i]), i


class HardBatches(Sampler):
    """Yields lists of P*K indices. `bank` holds the last embedding seen of every clip."""

    def __init__(self, labels, P, K, dim, steps, seed=0):
        self.labels = labels
        self.P, self.K, self.steps = P, K, steps
        self.rng = np.random.default_rng(seed)
        self.bank = F.normalize(torch.randn(len(labels), dim), dim=1).numpy()
        self.members = defaultdict(list)
        for i, c in enumerate(labels):
            self.members[int(c)].append(i)
        self.classes = sorted(self.members)

    def update(self, idx, emb):
        self.bank[idx.numpy()] = emb.detach().numpy()

    def centroids(self):
        return np.stack([self.bank[self.members[c]].mean(0) for c in self.classes])

    def hardness(self, cent):
        """> 0: nearer to another species than to its own"""
        hard = np.zeros(len(self.labels))
        for i, c in enumerate(self.labels):
            d = np.linalg.norm(cent - self.bank[i], axis=1)
            own = d[c]
            d[c] = np.inf
            hard[i] = own - d.min()
        return hard

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            cent = self.centroids()
            hard = self.hardness(cent)
            anchor = self.rng.choice(self.classes)
            order = np.argsort(np.linalg.norm(cent - cent[anchor], axis=1))
            near = order[: self.P // 2]  # includes the anchor
            rest = self.rng.choice(order[self.P // 2:], self.P - len(near), replace=False)
            batch = []
            for c in np.concatenate([near, rest]):
                m = np.array(self.members[int(c)])
                p = np.exp(3 * (hard[m] - hard[m].max()))
                batch += self.rng.choice(m, self.K, replace=False, p=p / p.sum()).tolist()
            yield batch


class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        chans = [1, 12, 24, 48]
        layers = []
        for a, b in zip(chans, chans[1:]):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(48 * 2, dim)

    def forward(self, x):
        x = self.body(x)
        x = torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)
        return F.normalize(self.head(x), dim=1)


def batch_hard_triplet(emb, y, margin):
    d = torch.cdist(emb, emb)
    same = y[:, None] == y[None]
    pos = d.masked_fill(~same, -1).max(1).values
    neg = d.masked_fill(same, 9).min(1).values
    return F.softplus((pos - neg + margin) * 8).mean() / 8, (pos < neg).float().mean()


def recall_at_1(bank, labels):
    e = torch.from_numpy(bank)
    sim = e @ e.T
    sim.fill_diagonal_(-2)
    return (torch.from_numpy(labels)[sim.argmax(1)] == torch.from_numpy(labels)).float().mean().item()


def main():
    a = get_args()
    torch.manual_seed(0)
    mels, labels = synth(a.root, a.species, a.clips)
    sampler = HardBatches(labels, a.P, a.K, a.dim, a.steps)
    loader = DataLoader(Clips(mels, labels), batch_sampler=sampler, num_workers=a.workers)
    net = Net(a.dim)
    opt = torch.optim.Adam(net.parameters(), lr=a.lr, weight_decay=1e-5)
    run_loss = run_acc = 0.0
    for step, (x, y, idx) in enumerate(loader, 1):
        emb = net(x)
        loss, acc = batch_hard_triplet(emb, y, a.margin)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sampler.update(idx, emb)
        run_loss += loss.item()
        run_acc += acc.item()
        if step % 50 == 0:
            print(f"step {step:5d}  triplet {run_loss / 50:.4f}  ok {run_acc / 50:.3f}", flush=True)
            run_loss = run_acc = 0.0
        if step % 500 == 0:
            print(f"   R@1 on the bank {recall_at_1(sampler.bank, labels):.3f}", flush=True)
            torch.save(net.state_dict(), os.path.join(a.root, "net.pt"))


if __name__ == "__main__":
    main()
