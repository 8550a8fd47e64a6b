"""In-hospital mortality from the first 48 hours of an ICU stay.

Events are kept in long format as they come out of the extraction query
(stay_id, hour, item, value). Each stay becomes a 48 x (2 * n_items) grid:
forward-filled values and an indicator of what was measured in that hour.
"""
import argparse
import os
import random
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

ITEMS = ["heart_rate", "sbp", "dbp", "resp_rate", "spo2", "temperature", "glucose",
         "lactate", "creatinine", "wbc", "gcs_eye", "gcs_verbal", "gcs_motor", "urine"]
HOURS = 48
DATA_DIR = os.path.join(tempfile.gettempdir(), "icu_mortality")


def build_cohort(n_stays=7000, seed=7):
    """Stand-in for the MIMIC extraction, same columns."""
    os.makedirs(DATA_DIR, exist_ok=True)
    events_path = os.path.join(DATA_DIR, "events.parquet")
    stays_path = os.path.join(DATA_DIR, "stays.csv")
    if os.path.exists(events_path) and os.path.exists(stays_path):
        return events_path, stays_path

    rng = np.random.default_rng(seed)
    stay_ids = rng.choice(np.arange(200000, 299999), n_stays, replace=False)
    severity = rng.normal(size=n_stays)
    age = np.clip(rng.normal(64, 15, n_stays), 18, 90)
    died = rng.random(n_stays) < 1 / (1 + np.exp(-(2.0 * severity - 2.0 + (age - 64) / 20)))
    pd.DataFrame({"stay_id": stay_ids, "age": age.round(), "sex": rng.integers(0, 2, n_stays),
                  "died": died.astype(int)}).to_csv(stays_path, index=False)

    freq = np.array([44, 40, 40, 44, 44, 14, 10, 4, 3, 3, 12, 12, 12, 30])
    load = rng.normal(size=len(ITEMS))
    parts = []
    for i in range(len(ITEMS)):
        n = rng.poisson(freq[i], n_stays)
        who = np.repeat(np.arange(n_stays), n)
        hour = rng.integers(0, HOURS, len(who))
        value = load[i] * severity[who] * (hour / HOURS) + rng.normal(size=len(who))
        parts.append(pd.DataFrame({"stay_id": stay_ids[who], "hour": hour,
                                   "item": i, "value": value.astype("float32")}))
    events = pd.concat(parts).sort_values(["hour", "stay_id"]).reset_index(drop=True)
    events.to_parquet(events_path)
    return events_path, stays_path


class ICUStays(Dataset):
    def __init__(self, events_path, stays_path):
        self.events = pd.read_parquet(events_path)
        self.stays = pd.read_csv(stays_path)
        mean = self.events.groupby("item")["value"].transform("mean")
        std = self.events.groupby("item")["value"].transform("std")
        self.events["value"] = (self.events["value"] - mean) / std

    def __len__(self):
        return len(self.stays)

    def __getitem__(self, idx):
        stay = self.stays.iloc[idx]
        ev = self.events[self.events["stay_id"] == stay["stay_id"]]

        hour = ev["hour"].values
        item = ev["item"].values
        values = np.zeros((HOURS, len(ITEMS)), dtype=np.float32)
        mask = np.zeros((HOURS, len(ITEMS)), dtype=np.float32)
        values[hour, item] = ev["value"].values
        mask[hour, item] = 1.0

        # carry the last observation forward
        for h in range(1, HOURS):
            values[h] = np.where(mask[h] > 0, values[h], values[h - 1])

        static = np.array([(stay["age"] - 64) / 15, stay["sex"]], dtype=np.float32)
        x = np.concatenate([values, mask], axis=1)
        return torch.from_numpy(x), torch.from_numpy(static), torch.tensor(stay["died"], dtype=torch.float32)


class MortalityGRU(nn.Module):
    def __init__(self, n_items, hidden=64, dropout=0.3):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(2 * n_items, hidden), nn.ReLU())
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.attn = nn.Linear(2 * hidden, 1)
        self.head = nn.Sequential(nn.Linear(2 * hidden + 2, hidden), nn.ReLU(),
                                  nn.Dropout(dropout), nn.Linear(hidden, 1))

    def forward(self, x, static):
        h, _ = self.gru(self.embed(x))
        a = torch.softmax(self.attn(h), dim=1)
        context = (a * h).sum(dim=1)
        return self.head(torch.cat([context, static], dim=1)).squeeze(-1)


def auroc(y_true, y_score):
    order = np.argsort(y_score)
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    pos = y_true > 0.5
    n_pos, n_neg = pos.sum(), (~pos).sum()
    return (rank[pos].sum() - n_pos * (n_pos + 1) / 2) / max(n_pos * n_neg, 1)


def evaluate(model, loader):
    model.eval()
    ys, ps = [], []
    with torch.no_grad():
        for x, static, y in loader:
            ps.append(torch.sigmoid(model(x, static)).numpy())
            ys.append(y.numpy())
    model.train()
    return auroc(np.concatenate(ys), np.concatenate(ps))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1, help="shared server, be nice")
    parser.add_argument("--seed", type=int, default=24)
    args = parser.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    data = ICUStays(*build_cohort())
    n_val = 200
    train_set, val_set = random_split(data, [len(data) - n_val, n_val])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    print(f"{len(train_set)} stays for training, {len(val_set)} for validation")

    model = MortalityGRU(len(ITEMS))
    pos_weight = torch.tensor((data.stays["died"] == 0).sum() / (data.stays["died"] == 1).sum())
    criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight.float())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)

    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for step, (x, static, y) in enumerate(train_loader, 1):
            optimizer.zero_grad()
            loss = criterion(model(x, static), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{len(train_loader)} loss {total / step:.4f}", flush=True)
        print(f"epoch {epoch}: train loss {total / len(train_loader):.4f}  val AUROC {evaluate(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
