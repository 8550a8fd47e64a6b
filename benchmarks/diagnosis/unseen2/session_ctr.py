#!/usr/bin/env python3
# Click prediction from short browsing sessions.
import argparse
import gc
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Session:
    user: int
    items: list
    hour: int
    clicked: float


def load_sessions(n, n_users, n_items, length=8):
    rng = np.random.default_rng(11)
    users = rng.integers(n_users, size=n).tolist()
    items = rng.integers(n_items, size=(n, length)).tolist()
    hours = rng.integers(24, size=n).tolist()
    taste = rng.standard_normal(n_items)
    clicked = (taste[np.asarray(items)].mean(1) + 0.2 * rng.standard_normal(n) > 0).astype(float).tolist()
    return [Session(u, i, h, c) for u, i, h, c in zip(users, items, hours, clicked)]


class ClickModel(nn.Module):
    def __init__(self, n_users, n_items, dim=64, hidden=1024):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.hour = nn.Embedding(24, dim)
        self.mlp = nn.Sequential(
            nn.Linear(10 * dim, hidden), nn.ReLU(),
            nn.Linear(hidden, 512), nn.ReLU(),
            nn.Linear(512, 1),
        )

    def forward(self, user, items, hour):
        parts = [self.user(user), self.item(items).flatten(1), self.hour(hour)]
        return self.mlp(torch.cat(parts, dim=1)).squeeze(1)


def collate(sessions):
    user = torch.tensor([s.user for s in sessions])
    items = torch.tensor([s.items for s in sessions])
    hour = torch.tensor([s.hour for s in sessions])
    clicked = torch.tensor([s.clicked for s in sessions])
    return user, items, hour, clicked


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sessions", type=int, default=200_000)
    ap.add_argument("--users", type=int, default=5000)
    ap.add_argument("--items", type=int, default=8000)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--epochs", type=int, default=30)
    args = ap.parse_args()

    torch.manual_seed(0)
    random.seed(0)
    sessions = load_sessions(args.sessions, args.users, args.items)
    model = ClickModel(args.users, args.items)
    opt = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    loss_fn = nn.BCEWithLogitsLoss()

    step, t0 = 0, time.time()
    for epoch in range(args.epochs):
        random.shuffle(sessions)
        for at in range(0, len(sessions) - args.batch_size + 1, args.batch_size):
            user, items, hour, clicked = collate(sessions[at:at + args.batch_size])
            loss = loss_fn(model(user, items, hour), clicked)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} ({time.time() - t0:.1f}s)", flush=True)
            del user, items, hour, clicked, loss
            gc.collect()


if __name__ == "__main__":
    main()
