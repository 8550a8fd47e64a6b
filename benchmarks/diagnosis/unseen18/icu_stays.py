"""In-hospital mortality from the first 48 hours of an ICU stay (one CSV of charted events per stay).

GRU over hourly bins with the observation mask as additional input.
"""
import argparse
import os
import random
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from scipy.stats import rankdata
from torch.utils.data import DataLoader, Dataset

DATA = os.path.join(tempfile.gettempdir(), "icu_stays_data")
HOURS = 48
CHANNELS = {  # name: (usual value, spread, measurements per hour)
    "heart_rate": (84, 16, 0.9), "systolic_bp": (120, 20, 0.8), "diastolic_bp": (62, 13, 0.8),
    "mean_bp": (80, 14, 0.8), "resp_rate": (19, 5, 0.9), "spo2": (97, 2, 0.9), "temperature": (36.9, 0.7, 0.25),
    "glucose": (135, 45, 0.2), "ph": (7.38, 0.07, 0.1), "gcs_total": (12, 3, 0.25), "fio2": (0.4, 0.15, 0.1),
    "lactate": (2.0, 1.3, 0.08),
}


def make_data(folder, n_stays=2400, seed=3):
    os.makedirs(os.path.join(folder, "stays"), exist_ok=True)
    rng = np.random.default_rng(seed)
    risk_dir = rng.normal(0, 0.35, len(CHANNELS))
    listing = []
    for i in range(n_stays):
        severity = rng.normal()
        rows = []
        for k, (name, (mean, sd, rate)) in enumerate(CHANNELS.items()):
            n = rng.poisson(rate * HOURS)
            t = np.sort(rng.uniform(0, HOURS, n))
            drift = risk_dir[k] * severity * (0.5 + t / HOURS)
            v = mean + sd * (drift + 0.5 * rng.normal() + 0.6 * rng.normal(size=n))
            rows += [(a, name, b) for a, b in zip(t, v)]
        rows.sort()
        name = "stay_%05d.csv" % i
        with open(os.path.join(folder, "stays", name), "w") as f:
            f.write("hours,channel,value\n")
            f.writelines("%.3f,%s,%.2f\n" % r for r in rows)
        died = rng.random() < 1 / (1 + np.exp(2.2 - 1.5 * severity))
        listing.append((name, int(died), "test" if i % 6 == 0 else "train"))
    pd.DataFrame(listing, columns=["stay", "died", "split"]).to_csv(os.path.join(folder, "listfile.csv"), index=False)


class StaysDataset(Dataset):
    def __init__(self, folder, split):
        listing = pd.read_csv(os.path.join(folder, "listfile.csv"))
        self.listing = listing[listing.split == split].reset_index(drop=True)
        self.folder = folder
        self.channels = list(CHANNELS)
        self.usual = np.array([CHANNELS[c][0] for c in self.channels], dtype=np.float32)
        self.spread = np.array([CHANNELS[c][1] for c in self.channels], dtype=np.float32)

    def __len__(self):
        return len(self.listing)

    def load_stay(self, name):
        """Hourly table of the stay: last value of the hour, carried forward, then the usual value."""
        events = pd.read_csv(os.path.join(self.folder, "stays", name))
        events["hour"] = events["hours"].astype(int).clip(0, HOURS - 1)
        table = events.pivot_table(index="hour", columns="channel", values="value", aggfunc="last")
        table = table.reindex(index=range(HOURS), columns=self.channels)
        mask = table.notna().to_numpy(dtype=np.float32)
        values = table.ffill().fillna(dict(zip(self.channels, self.usual))).to_numpy(dtype=np.float32)
        values = (values - self.usual) / self.spread
        return np.concatenate([values, mask], axis=1)

    def __getitem__(self, i):
        row = self.listing.iloc[i]
        return torch.from_numpy(self.load_stay(row.stay)), torch.tensor(row.died, dtype=torch.float32)


class StayGRU(nn.Module):
    def __init__(self, n_inputs, hidden, layers, dropout):
        super().__init__()
        self.project = nn.Linear(n_inputs, hidden)
        self.gru = nn.GRU(hidden, hidden, layers, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.gru(torch.relu(self.project(x)))
        return self.head(self.dropout(h[:, -1])).squeeze(1)


def auroc(y, score):
    ranks = rankdata(score)
    pos = y == 1
    n_pos, n_neg = pos.sum(), (~pos).sum()
    return (ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    logits, targets = [], []
    for x, y in loader:
        logits.append(model(x))
        targets.append(y)
    logits, targets = torch.cat(logits), torch.cat(targets)
    return criterion(logits, targets).item(), auroc(targets.numpy(), logits.numpy())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if not os.path.exists(os.path.join(DATA, "listfile.csv")):
        make_data(DATA)

    train_set, test_set = StaysDataset(DATA, "train"), StaysDataset(DATA, "test")
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=64)
    print("%d training stays, %d test stays" % (len(train_set), len(test_set)))

    model = StayGRU(2 * len(CHANNELS), args.hidden, args.layers, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    criterion = nn.BCEWithLogitsLoss()
    print("epoch | train loss | test loss | test auroc")
    for epoch in range(1, args.epochs + 1):
        model.train()
        losses = []
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        test_loss, test_auc = evaluate(model, test_loader, criterion)
        print("%5d | %10.4f | %9.4f | %10.4f" % (epoch, np.mean(losses), test_loss, test_auc), flush=True)


if __name__ == "__main__":
    main()
