"""Predict length of hospital stay from admission records.

Patients in one mini-batch come from around the same admission date, so that
the seasonal effect is shared within a batch and the model learns the rest.
"""
import random
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

ROWS = 80_000
BATCH = 256
BATCHES_PER_EPOCH = 150
EPOCHS = 60
WIDTH = 256
LR = 1e-3
CATEGORICAL = {"ward": 24, "diagnosis": 300, "insurer": 12, "referral": 6}
NUMERIC = ["age", "bmi", "pulse", "systolic", "creatinine", "sodium", "haemoglobin", "prior_admissions"]


def make_admissions(seed=7):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({
        "admitted": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 5 * 365 * 24 * 60, ROWS), unit="min"),
        "age": rng.normal(58, 18, ROWS).clip(0, 100),
        "bmi": rng.normal(27, 5, ROWS).clip(14, 60),
        "pulse": rng.normal(82, 14, ROWS),
        "systolic": rng.normal(131, 19, ROWS),
        "creatinine": rng.lognormal(0, 0.4, ROWS),
        "sodium": rng.normal(139, 4, ROWS),
        "haemoglobin": rng.normal(13, 2, ROWS),
        "prior_admissions": rng.poisson(1.1, ROWS),
    })
    for name, n in CATEGORICAL.items():
        df[name] = np.minimum(rng.geometric(4 / n, ROWS) - 1, n - 1)
    effect = rng.normal(0, 0.4, CATEGORICAL["diagnosis"])
    season = 0.3 * np.cos(2 * np.pi * df["admitted"].dt.dayofyear / 365)
    log_days = (1.2 + 0.012 * (df["age"] - 58) + 0.3 * np.log(df["creatinine"]) + season
                + effect[df["diagnosis"]] + 0.1 * df["prior_admissions"] + rng.normal(0, 0.3, ROWS))
    df["log_days"] = log_days
    return df


class Admissions(Dataset):
    def __init__(self, df):
        num = df[NUMERIC].to_numpy(np.float32)
        self.num = torch.from_numpy((num - num.mean(0)) / num.std(0))
        self.cat = torch.from_numpy(df[list(CATEGORICAL)].to_numpy(np.int64))
        self.y = torch.from_numpy(df["log_days"].to_numpy(np.float32))

    def __len__(self):
        return len(self.y)

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.num[rows], self.cat[rows], self.y[rows]


class SameSeason(Sampler):
    """Yields the rows whose admission is closest to a random anchor date."""

    def __init__(self, admitted, batch, batches, seed=0):
        self.minutes = (admitted.astype("int64") // 60_000_000_000).tolist()
        self.first, self.last = min(self.minutes), max(self.minutes)
        self.batch, self.batches = batch, batches
        self.rng = random.Random(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            anchor = self.rng.randint(self.first, self.last)
            order = sorted(range(len(self.minutes)), key=lambda i: abs(self.minutes[i] - anchor))
            pool = order[: 4 * self.batch]
            yield self.rng.sample(pool, self.batch)


class StayModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(n, min(32, 2 + n // 4)) for n in CATEGORICAL.values())
        n_in = len(NUMERIC) + sum(e.embedding_dim for e in self.emb)
        self.inp = nn.Linear(n_in, WIDTH)
        self.res = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dropout(0.1),
                          nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(4))
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, num, cat):
        z = torch.cat([num] + [e(cat[:, k]) for k, e in enumerate(self.emb)], 1)
        h = self.inp(z)
        for block in self.res:
            h = h + block(h)
        mu, log_sigma = self.out(h).unbind(1)
        return mu, log_sigma.clamp(-4, 3)


def nll(mu, log_sigma, y):
    return (log_sigma + 0.5 * ((y - mu) / log_sigma.exp()) ** 2).mean()


torch.manual_seed(0)
frame = make_admissions()
data = Admissions(frame)
sampler = SameSeason(frame["admitted"].astype("datetime64[ns]"), BATCH, BATCHES_PER_EPOCH)
loader = DataLoader(data, batch_sampler=sampler, collate_fn=lambda b: b)
model = StayModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3 * LR, total_steps=EPOCHS * BATCHES_PER_EPOCH)
print(frame.describe().T[["mean", "std"]].round(2).to_string())

started, done = time.time(), 0
for epoch in range(EPOCHS):
    total, mae = 0.0, 0.0
    for k, (num, cat, y) in enumerate(loader, 1):
        mu, log_sigma = model(num, cat)
        loss = nll(mu, log_sigma, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
        mae += (mu.detach() - y).abs().mean().item()
        done += 1
        if k % 25 == 0:
            print(f"{epoch:02d}/{k:03d} nll={total / k:.4f} mae(log days)={mae / k:.4f} "
                  f"{done / (time.time() - started):.1f} steps/s", flush=True)
