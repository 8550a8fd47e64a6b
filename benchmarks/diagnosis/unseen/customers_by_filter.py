"""Churn prediction from purchase histories (GRU over the last purchases of each customer)."""
import argparse
import logging

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CUSTOMERS = 4000
HISTORY = 32
GRU_SIZE = 40

log = logging.getLogger("churn")


def simulate_purchases(per_customer=90, seed=5):
    g = np.random.default_rng(seed)
    n = CUSTOMERS * per_customer
    loyalty = g.random(CUSTOMERS)
    customer = g.integers(0, CUSTOMERS, n)
    purchases = pd.DataFrame({
        "customer": customer,
        "day": np.sort(g.integers(0, 730, n)),
        "amount": g.gamma(2.0, 10.0 + 30.0 * loyalty[customer]),
        "items": 1 + g.poisson(2.0 + 3.0 * loyalty[customer]),
        "online": (g.random(n) < 0.4).astype(np.int64),
    })
    churned = pd.Series((loyalty + 0.15 * g.standard_normal(CUSTOMERS) < 0.4).astype(np.float32))
    return purchases, churned


class HistoryDataset(Dataset):
    features = ["day", "amount", "items", "online"]
    scale = np.array([730.0, 50.0, 5.0, 1.0], dtype=np.float32)

    def __init__(self, purchases, churned):
        self.purchases = purchases
        self.churned = churned.to_numpy()

    def __len__(self):
        return len(self.churned)

    def __getitem__(self, c):
        df = self.purchases
        rows = df[df.customer == c]
        values = rows[self.features].to_numpy(dtype=np.float32)[-HISTORY:] / self.scale
        x = np.zeros((HISTORY, len(self.features)), dtype=np.float32)
        x[HISTORY - len(values):] = values
        return torch.from_numpy(x), self.churned[c]


class ChurnModel(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.rnn = nn.GRU(n_features, GRU_SIZE, batch_first=True)
        self.out = nn.Linear(GRU_SIZE, 1)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.out(h[-1]).squeeze(-1)


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=500)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--workers", type=int, default=2)
    return p.parse_args()


def main():
    args = get_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(5)
    purchases, churned = simulate_purchases()
    log.info("%d purchases of %d customers", len(purchases), CUSTOMERS)
    loader = DataLoader(HistoryDataset(purchases, churned), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=args.workers > 0)
    model = ChurnModel(len(HistoryDataset.features))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        log.info("epoch %d loss %.4f", epoch, total / len(loader))


if __name__ == "__main__":
    main()
