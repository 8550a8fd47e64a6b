# Message passing network for aqueous solubility, plain PyTorch.
# Molecules are random organic-looking graphs, the target is a group-contribution formula.
import argparse
import os
import pickle
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ELEMENTS = ["C", "N", "O", "S", "F", "Cl", "Br"]
VALENCE = {"C": 4, "N": 3, "O": 2, "S": 2, "F": 1, "Cl": 1, "Br": 1}
CONTRIB = {"C": -0.32, "N": 0.55, "O": 0.74, "S": -0.10, "F": -0.25, "Cl": -0.61, "Br": -0.80}
BOND_TYPES = 3
CACHE = os.path.join(tempfile.gettempdir(), "solubility_mpnn")


def random_molecule(rng):
    n = rng.randint(14, 40)
    atoms, free, bonds = [], [], []
    for i in range(n):
        el = rng.choices(ELEMENTS, weights=[68, 11, 12, 3, 3, 2, 1])[0] if i else "C"
        candidates = [j for j in range(i) if free[j] > 0]
        if i and not candidates:
            break
        atoms.append(el)
        free.append(VALENCE[el])
        if i:
            j = rng.choice(candidates)
            order = min(rng.choices([1, 2, 3], weights=[85, 13, 2])[0], free[i], free[j])
            bonds.append((j, i, order - 1))
            free[i] -= order
            free[j] -= order
    # close a few rings
    for _ in range(rng.randint(0, 4)):
        open_atoms = [k for k in range(len(atoms)) if free[k] > 0]
        if len(open_atoms) < 2:
            break
        a, b = rng.sample(open_atoms, 2)
        if not any({a, b} == {u, v} for u, v, _ in bonds):
            bonds.append((a, b, 0))
            free[a] -= 1
            free[b] -= 1
    y = sum(CONTRIB[a] for a in atoms) - 0.15 * len(bonds) + 0.4 * sum(t for *_, t in bonds)
    return atoms, free, bonds, y / 4 + rng.gauss(0, 0.05)


def load_molecules(n_mols, seed=17):
    os.makedirs(CACHE, exist_ok=True)
    fn = os.path.join(CACHE, f"mols_{n_mols}.pkl")
    if not os.path.exists(fn):
        rng = random.Random(seed)
        mols = [random_molecule(rng) for _ in range(n_mols)]
        with open(fn + ".part", "wb") as fh:
            pickle.dump(mols, fh)
        os.replace(fn + ".part", fn)
    with open(fn, "rb") as fh:
        return pickle.load(fh)


class MolGraphs(Dataset):
    """Node features, adjacency (0 = no bond, k = bond type k - 1) and target of each molecule."""

    def __init__(self, mols):
        self.items = []
        for atoms, free, bonds, y in mols:
            n = len(atoms)
            x = torch.zeros(n, len(ELEMENTS) + 6)
            x[torch.arange(n), torch.tensor([ELEMENTS.index(a) for a in atoms])] = 1.0
            x[torch.arange(n), len(ELEMENTS) + torch.tensor(free).clamp(max=4)] = 1.0
            adj = torch.zeros(n, n)
            for u, v, t in bonds:
                adj[u, v] = adj[v, u] = t + 1
            x[:, -1] = (adj > 0).sum(1) / 4.0
            self.items.append((x, adj, float(y)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate_graphs(samples):
    xs, adjs, ys = zip(*samples)
    x = torch.cat(xs)
    sizes = torch.tensor([len(v) for v in xs])
    graph_id = torch.repeat_interleave(torch.arange(len(xs)), sizes)
    big = torch.block_diag(*adjs)
    src, dst = torch.nonzero(big, as_tuple=True)
    bond = big[src, dst].long() - 1
    return x, src, dst, bond, graph_id, torch.tensor(ys)


class EdgeConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bond_emb = nn.Embedding(BOND_TYPES, dim)
        self.msg = nn.Linear(dim, dim)
        self.upd = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, src, dst, bond):
        m = F.relu(self.msg(h)[src] + self.bond_emb(bond))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return self.norm(h + F.relu(self.upd(torch.cat([h, agg], dim=1))))


class MPNN(nn.Module):
    def __init__(self, in_dim, dim, layers):
        super().__init__()
        self.inp = nn.Linear(in_dim, dim)
        self.convs = nn.ModuleList(EdgeConv(dim) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x, src, dst, bond, graph_id, n_graphs):
        h = self.inp(x)
        for conv in self.convs:
            h = conv(h, src, dst, bond)
        pooled = h.new_zeros(n_graphs, h.shape[1]).index_add_(0, graph_id, h)
        return self.out(pooled / 10.0).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n_mols", type=int, default=12000)
    p.add_argument("--batch_size", type=int, default=128)
    p.add_argument("--dim", type=int, default=40)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # shared node
    np.random.seed(args.seed)
    mols = load_molecules(args.n_mols)
    n_val = len(mols) // 20
    train_set, val_set = MolGraphs(mols[n_val:]), MolGraphs(mols[:n_val])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, collate_fn=collate_graphs)
    val_loader = DataLoader(val_set, 64, collate_fn=collate_graphs)

    model = MPNN(len(ELEMENTS) + 6, args.dim, args.layers)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(train_loader))
    print(f"{len(train_set)} molecules, {sum(q.numel() for q in model.parameters())} parameters")

    for epoch in range(args.epochs):
        model.train()
        t0, running = time.time(), 0.0
        for step, (x, src, dst, bond, gid, y) in enumerate(train_loader):
            pred = model(x, src, dst, bond, gid, len(y))
            loss = F.mse_loss(pred, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{len(train_loader)} mse {running / (step + 1):.4f}", flush=True)
        train_time = time.time() - t0

        if epoch % 5 == 4:
            model.eval()
            err = []
            with torch.no_grad():
                for x, src, dst, bond, gid, y in val_loader:
                    err.append((model(x, src, dst, bond, gid, len(y)) - y).abs())
            print(f"epoch {epoch} val MAE {torch.cat(err).mean():.4f} ({train_time:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
