"""Toy molecular property regression with a message passing network written from scratch."""
from argparse import ArgumentParser

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

DIM = 160
MOLECULES = 14
SEED = 31


def molecule(rng):
    """A random tree with a few rings; the target depends on which kinds of atoms are neighbours."""
    n = int(rng.integers(14, 28))
    kinds = rng.integers(0, 6, n)
    bonds = [(i, int(rng.integers(max(0, i - 4), i))) for i in range(1, n)]
    for _ in range(int(rng.integers(0, 4))):
        a, b = rng.choice(n, 2, replace=False)
        bonds.append((int(a), int(b)))
    charge = np.array([0.3, -0.5, 0.1, 0.8, -0.2, 0.4])
    target = sum(charge[kinds[a]] * charge[kinds[b]] for a, b in bonds)
    pairs = np.array(bonds + [(b, a) for a, b in bonds])
    return kinds, pairs, target


def merge(molecules):
    kinds, src, dst, owner, targets, base = [], [], [], [], [], 0
    for m, (k, pairs, target) in enumerate(molecules):
        kinds.append(k)
        src.append(pairs[:, 0] + base)
        dst.append(pairs[:, 1] + base)
        owner.append(np.full(len(k), m))
        targets.append(target)
        base += len(k)
    cat = lambda parts: torch.from_numpy(np.concatenate(parts).astype(np.int64))
    return cat(kinds), cat(src), cat(dst), cat(owner), torch.tensor(targets, dtype=torch.float32)


class MessageLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(dim, dim)
        self.update = nn.Sequential(nn.Linear(2 * dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, src, dst):
        m = self.message(h)
        received = []
        for atom in range(len(h)):
            received.append(m[src[dst == atom]].sum(0))
        total = torch.stack(received)
        return self.norm(h + self.update(torch.cat([h, total], 1)))


class Network(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(6, dim)
        self.layers = nn.ModuleList([MessageLayer(dim) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, kinds, src, dst, owner, n):
        h = self.embed(kinds)
        for layer in self.layers:
            h = layer(h, src, dst)
        atoms = self.readout(h).squeeze(1)
        return torch.zeros(n).index_add(0, owner, atoms)


def main():
    ap = ArgumentParser()
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--epochs", type=int, default=1000)
    opts = ap.parse_args()
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    library = [molecule(rng) for _ in range(2000)]
    net = Network(DIM, opts.layers)
    adam = torch.optim.Adam(net.parameters(), lr=opts.lr)
    for epoch in range(opts.epochs):
        order = rng.permutation(len(library))
        total, count = 0.0, 0
        for at in range(0, len(order) - MOLECULES, MOLECULES):
            kinds, src, dst, owner, target = merge([library[i] for i in order[at : at + MOLECULES]])
            loss = F.smooth_l1_loss(net(kinds, src, dst, owner, MOLECULES), target)
            adam.zero_grad()
            loss.backward()
            adam.step()
            total, count = total + loss.item(), count + 1
            if count % 20 == 0:
                print(f"epoch {epoch} {count * MOLECULES}/{len(library)} loss {total / count:.4f}", flush=True)


if __name__ == "__main__":
    main()
