#!/usr/bin/env python
"""GCN regression of aqueous solubility, no graph library needed.

Molecules are random ring/chain skeletons with heteroatoms; the label is an
additive group contribution model plus noise, which is enough to see whether the
network learns anything.
"""
import argparse
import logging
import math
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("molgcn")

ELEMENTS = ["C", "N", "O", "S", "F", "Cl", "Br", "P"]
CONTRIB = np.array([-0.35, 0.55, 0.80, -0.10, -0.15, -0.45, -0.60, 0.30])
ROOT = Path(tempfile.gettempdir()) / "molgcn"


# ---------------------------------------------------------------- molecules
def random_molecule(rng):
    n = int(rng.integers(18, 44))
    bonds, i = [], 0
    while i < n:
        ring = rng.random() < 0.5 and n - i >= 6
        size = 6 if ring else int(min(rng.integers(1, 5), n - i))
        if i > 0:
            bonds.append((int(rng.integers(0, i)), i))
        bonds += [(j, j + 1) for j in range(i, i + size - 1)]
        if ring:
            bonds.append((i, i + size - 1))
        i += size
    atoms = rng.choice(len(ELEMENTS), size=n, p=[0.70, 0.10, 0.10, 0.03, 0.02, 0.02, 0.01, 0.02])
    return atoms.astype(np.int64), np.array(bonds, dtype=np.int64)


def solubility(atoms, bonds, rng):
    degree = np.bincount(bonds.ravel(), minlength=len(atoms))
    exposed = 1.0 / np.maximum(degree, 1)
    return float((CONTRIB[atoms] * exposed).sum() - 0.04 * len(atoms) + rng.normal(0, 0.1))


def load_molecules(count, seed=11):
    path = ROOT / f"molecules_{count}.pkl"
    if not path.exists():
        ROOT.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        out = []
        for _ in range(count):
            atoms, bonds = random_molecule(rng)
            out.append((atoms, bonds, solubility(atoms, bonds, rng)))
        path.write_bytes(pickle.dumps(out))
    return pickle.loads(path.read_bytes())


class MoleculeDataset(Dataset):
    """Featurises each molecule once: one-hot element + degree, normalised adjacency."""

    def __init__(self, molecules):
        ys = np.array([m[2] for m in molecules], dtype=np.float32)
        self.mean, self.std = float(ys.mean()), float(ys.std())
        self.items = [self.featurise(*m) for m in molecules]

    def featurise(self, atoms, bonds, y):
        n = len(atoms)
        a = torch.eye(n)
        a[bonds[:, 0], bonds[:, 1]] = 1.0
        a[bonds[:, 1], bonds[:, 0]] = 1.0
        deg = a.sum(1)
        adj = a / torch.sqrt(deg[:, None] * deg[None, :])
        x = torch.zeros(n, len(ELEMENTS) + 6)
        x[torch.arange(n), torch.from_numpy(atoms)] = 1.0
        x[torch.arange(n), len(ELEMENTS) + deg.long().clamp(max=6) - 1] = 1.0
        return {"x": x, "adj": adj, "y": (y - self.mean) / self.std}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    sizes = torch.tensor([len(m["x"]) for m in batch])
    x = torch.cat([m["x"] for m in batch])
    adj = torch.block_diag(*[m["adj"] for m in batch]).to_sparse()
    graph = torch.repeat_interleave(torch.arange(len(batch)), sizes)
    y = torch.tensor([m["y"] for m in batch])
    return x, adj, graph, y


# -------------------------------------------------------------------- model
class GCNLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)
        self.norm = nn.LayerNorm(d_out)

    def forward(self, h, adj):
        return torch.relu(self.norm(torch.sparse.mm(adj, self.lin(h))))


class GCN(nn.Module):
    def __init__(self, d_in, hidden, layers):
        super().__init__()
        dims = [d_in] + [hidden] * layers
        self.layers = nn.ModuleList(GCNLayer(a, b) for a, b in zip(dims, dims[1:]))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.hidden = hidden

    def forward(self, x, adj, graph, n_graphs):
        h = x
        for layer in self.layers:
            h = layer(h, adj)
        pooled = h.new_zeros(n_graphs, self.hidden).index_add_(0, graph, h)
        return self.head(pooled).squeeze(-1)


@torch.no_grad()
def evaluate(model, loader, std):
    model.eval()
    se, n = 0.0, 0
    for x, adj, graph, y in loader:
        pred = model(x, adj, graph, len(y))
        se += ((pred - y) ** 2).sum().item()
        n += len(y)
    model.train()
    return math.sqrt(se / n) * std


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--molecules", type=int, default=12000)
    p.add_argument("--batch-size", type=int, default=112)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    molecules = load_molecules(args.molecules)
    split = len(molecules) - 400
    train_set = MoleculeDataset(molecules[:split])
    valid_set = MoleculeDataset(molecules[split:])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    valid_loader = DataLoader(valid_set, args.batch_size, collate_fn=collate)
    log.info("%d training molecules, %.1f atoms on average", split,
             np.mean([len(m[0]) for m in molecules[:split]]))

    model = GCN(len(ELEMENTS) + 6, args.hidden, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))

    for epoch in range(args.epochs):
        t0, total = time.time(), 0.0
        for x, adj, graph, y in train_loader:
            pred = model(x, adj, graph, len(y))
            loss = nn.functional.mse_loss(pred, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        log.info("epoch %02d  train mse %.4f  valid rmse %.3f  (%.1fs)", epoch,
                 total / len(train_loader), evaluate(model, valid_loader, valid_set.std), time.time() - t0)


if __name__ == "__main__":
    main()
