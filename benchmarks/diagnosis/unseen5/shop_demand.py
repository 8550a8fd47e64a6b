#!/usr/bin/env python
"""Daily demand per shop and article from the sales ledger and the article master."""
import argparse

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GROUPS = ["dairy", "bakery", "drinks", "produce", "frozen", "household", "snacks"]


def article_master(rng, n):
    return pd.DataFrame({
        "sku": [f"A{code:07d}" for code in rng.choice(9_999_999, n, replace=False)],
        "group": rng.choice(GROUPS, n),
        "price": rng.gamma(2.0, 1.8, n).round(2) + 0.2,
        "shelf_life": rng.integers(2, 400, n),
        "margin": rng.uniform(0.05, 0.45, n),
    })


def ledger(rng, master, shops, rows, history):
    art = rng.integers(len(master), size=rows)
    shop = rng.integers(shops, size=rows)
    day = rng.integers(365, size=rows)
    pull = rng.normal(0, 0.4, shops)
    price, life = master["price"].to_numpy()[art], master["shelf_life"].to_numpy()[art]
    group = pd.Categorical(master["group"], categories=GROUPS).codes[art]
    week = 0.3 * np.sin(2 * np.pi * day / 7 + group)
    rate = np.exp(1.6 - 0.25 * np.log(price) + pull[shop] + week + 0.05 * np.log(life))
    past = rng.poisson(rate[:, None], (rows, history))
    return pd.DataFrame({"sku": master["sku"].to_numpy()[art], "shop": shop, "day": day,
                         "units": rng.poisson(rate)}), past.astype(np.float32)


class Sales(Dataset):
    def __init__(self, frame, past, master):
        self.master = master
        self.sku = frame["sku"].tolist()
        self.shop = frame["shop"].to_numpy()
        self.day = frame["day"].to_numpy()
        self.units = frame["units"].to_numpy(dtype=np.float32)
        self.past = past

    def __len__(self):
        return len(self.sku)

    def article(self, sku):
        return self.master[self.master["sku"] == sku].iloc[0]

    def __getitem__(self, i):
        a = self.article(self.sku[i])
        angle = 2 * np.pi * self.day[i] / 7
        numbers = np.array([np.log(a["price"]), np.log(a["shelf_life"]) / 3, a["margin"], np.sin(angle), np.cos(angle)],
                           dtype=np.float32)
        return {"numbers": numbers, "group": GROUPS.index(a["group"]), "shop": int(self.shop[i]),
                "past": np.log1p(self.past[i]), "units": self.units[i]}


class DemandNet(nn.Module):
    def __init__(self, shops, dim=24, hidden=160):
        super().__init__()
        self.shop = nn.Embedding(shops, dim)
        self.group = nn.Embedding(len(GROUPS), dim)
        self.past = nn.Sequential(nn.Conv1d(1, 40, 7, padding=3), nn.ReLU(), nn.Conv1d(40, 48, 7, padding=3, stride=2),
                                  nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.mlp = nn.Sequential(nn.Linear(2 * dim + 5 + 192, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1))

    def forward(self, b):
        past = self.past(b["past"].unsqueeze(1))
        h = torch.cat([self.shop(b["shop"]), self.group(b["group"]), b["numbers"], past], 1)
        return self.mlp(h).squeeze(1)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--articles", type=int, default=24000)
    p.add_argument("--shops", type=int, default=120)
    p.add_argument("--rows", type=int, default=40000)
    p.add_argument("--history", type=int, default=84)
    p.add_argument("--batch", type=int, default=192)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    a = parse()
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed)
    master = article_master(rng, a.articles)
    frame, past = ledger(rng, master, a.shops, a.rows, a.history)
    cut = a.rows - 1000
    loader = DataLoader(Sales(frame[:cut], past[:cut], master), batch_size=a.batch, shuffle=True, drop_last=True,
                        num_workers=2, persistent_workers=True)
    held = next(iter(DataLoader(Sales(frame[cut:], past[cut:], master), batch_size=1000)))
    net = DemandNet(a.shops)
    opt = torch.optim.Adam(net.parameters(), lr=a.lr)
    lossfn = nn.PoissonNLLLoss()
    for epoch in range(a.epochs):
        smooth = None
        for i, batch in enumerate(loader):
            loss = lossfn(net(batch), batch["units"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
            if i % 50 == 0:
                print(f"epoch={epoch} batch={i} nll={smooth:.4f}", flush=True)
        with torch.no_grad():
            mae = (net(held).exp() - held["units"]).abs().mean().item()
        print(f"epoch={epoch} held_mae={mae:.3f}", flush=True)


if __name__ == "__main__":
    main()
