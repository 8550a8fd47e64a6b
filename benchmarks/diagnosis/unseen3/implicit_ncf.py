"""
Neural collaborative filtering on implicit feedback (play counts of an
internal podcast app, here replaced by a generator with the same shape).
"""
import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader, Sampler


@dataclass
class Sizes:
    users: int = 12000
    items: int = 3000
    events: int = 200_000


def generate(sizes, seed):
    rng = np.random.default_rng(seed)
    pu = rng.normal(size=(sizes.users, 6))
    qi = rng.normal(size=(sizes.items, 6))
    pop = rng.zipf(1.6, sizes.items).clip(max=500).astype(float)
    pop /= pop.sum()
    u = rng.integers(0, sizes.users, sizes.events * 3)
    i = rng.choice(sizes.items, sizes.events * 3, p=pop)
    keep = (pu[u] * qi[i]).sum(1) + rng.normal(size=u.size) > 1.0
    u, i = u[keep][: sizes.events], i[keep][: sizes.events]
    return u.astype(np.int64), i.astype(np.int64)


class Events(Dataset):
    def __init__(self, u, i, n_items, n_neg=4):
        self.u, self.i = torch.from_numpy(u), torch.from_numpy(i)
        self.n_items, self.n_neg = n_items, n_neg

    def __len__(self):
        return len(self.u)

    def __getitem__(self, idx):
        # idx is a whole batch of positions, see BatchOf
        u, pos = self.u[idx], self.i[idx]
        neg = torch.randint(0, self.n_items, (len(u), self.n_neg))
        items = torch.cat([pos[:, None], neg], 1)
        label = torch.zeros(items.shape)
        label[:, 0] = 1
        return u[:, None].expand_as(items), items, label


class BatchOf(Sampler):
    def __init__(self, n, size):
        self.n, self.size = n, size

    def __iter__(self):
        return iter(torch.randperm(self.n).split(self.size))

    def __len__(self):
        return -(-self.n // self.size)


class NCF(nn.Module):
    def __init__(self, users, items, dim=32):
        super().__init__()
        self.gmf_u, self.gmf_i = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.mlp_u, self.mlp_i = nn.Embedding(users, dim), nn.Embedding(items, dim)
        for e in (self.gmf_u, self.gmf_i, self.mlp_u, self.mlp_i):
            nn.init.normal_(e.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, 64), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(32, 16), nn.ReLU(),
        )
        self.out = nn.Linear(dim + 16, 1)

    def forward(self, u, i):
        g = self.gmf_u(u) * self.gmf_i(i)
        m = self.mlp(torch.cat([self.mlp_u(u), self.mlp_i(i)], -1))
        return self.out(torch.cat([g, m], -1)).squeeze(-1)


def train(args):
    torch.manual_seed(args.seed)
    sizes = Sizes()
    u, i = generate(sizes, args.seed)
    print(f"{len(u)} events, {sizes.users} users, {sizes.items} items")
    data = Events(u, i, sizes.items)
    loader = DataLoader(data, sampler=BatchOf(len(data), args.batch), batch_size=None)

    model = NCF(sizes.users, sizes.items)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-6)
    bce = nn.BCEWithLogitsLoss()

    for epoch in range(args.epochs):
        t, seen, agg = time.time(), 0, 0.0
        for k, (user, item, label) in enumerate(loader, 1):
            loss = bce(model(user, item), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(user)
            agg += loss.item()
            if seen // 3200 != (seen - len(user)) // 3200:
                print(f"epoch {epoch} [{seen:6d}/{len(data)}] loss {agg / k:.4f} {seen / (time.time() - t):.0f} events/s", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=200)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    train(ap.parse_args())
