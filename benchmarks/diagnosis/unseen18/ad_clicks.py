"""
CTR model on one day of ad server logs (parquet). Wide & deep style, replaces the old
logistic regression with hashed features.
"""
import os
import tempfile
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from torchmetrics.functional.classification import binary_auroc

CACHE = os.path.join(tempfile.gettempdir(), "ad_clicks")
CARDINALITY = {
    "user_id": 300_000,
    "ip_hash": 250_000,
    "ad_id": 40_000,
    "site_id": 12_000,
    "placement": 600,
    "device_model": 3_000,
    "campaign": 4_000,
    "hour": 24,
}
NUMERIC = ["bid", "ad_age_days", "user_clicks_7d", "user_views_7d"]
EMB_DIM = 16
BATCH_SIZE = 1024
EPOCHS = 4


def simulate_logs(path, n=1_500_000):
    rng = np.random.default_rng(3)
    cols, effect = {}, np.full(n, -2.6)
    for name, card in CARDINALITY.items():
        # heavy-tailed popularity
        ids = np.minimum((card * rng.random(n) ** 2.5).astype(np.int64), card - 1)
        cols[name] = ids.astype(np.int32)
        effect += rng.normal(0, 0.35, card)[ids]
    cols["bid"] = rng.lognormal(0, 0.5, n).astype(np.float32)
    cols["ad_age_days"] = rng.exponential(10, n).astype(np.float32)
    cols["user_clicks_7d"] = rng.poisson(0.6, n).astype(np.float32)
    cols["user_views_7d"] = rng.poisson(15, n).astype(np.float32)
    effect += 0.4 * cols["user_clicks_7d"] - 0.02 * cols["ad_age_days"]
    cols["click"] = (rng.random(n) < 1 / (1 + np.exp(-effect))).astype(np.int8)
    pd.DataFrame(cols).to_parquet(path)


def read_logs():
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, "impressions.parquet")
    if not os.path.exists(path):
        simulate_logs(path)
    df = pd.read_parquet(path)
    df[NUMERIC] = np.log1p(df[NUMERIC])
    df[NUMERIC] = (df[NUMERIC] - df[NUMERIC].mean()) / df[NUMERIC].std()
    return df


def batches(cat, num, y, batch_size, shuffle=True):
    order = torch.randperm(len(y)) if shuffle else torch.arange(len(y))
    for i in range(0, len(y), batch_size):
        idx = order[i:i + batch_size]
        yield cat[idx], num[idx], y[idx]


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(card, EMB_DIM) for card in CARDINALITY.values()])
        for emb in self.embeddings:
            nn.init.normal_(emb.weight, std=0.01)
        width = EMB_DIM * len(CARDINALITY) + len(NUMERIC)
        self.mlp = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(128, 1))
        self.wide = nn.Linear(width, 1)

    def forward(self, cat, num):
        parts = [emb(cat[:, i]) for i, emb in enumerate(self.embeddings)]
        x = torch.cat(parts + [num], dim=1)
        return (self.mlp(x) + self.wide(x)).squeeze(1)


@torch.no_grad()
def evaluate(model, cat, num, y):
    model.eval()
    probs = []
    for c, n, _ in batches(cat, num, y, 8192, shuffle=False):
        probs.append(torch.sigmoid(model(c, n)))
    probs = torch.cat(probs)
    model.train()
    return binary_auroc(probs, y.long()).item(), F.binary_cross_entropy(probs, y).item()


def main():
    torch.manual_seed(1)
    df = read_logs()
    cat = torch.from_numpy(df[list(CARDINALITY)].values.astype(np.int64))
    num = torch.from_numpy(df[NUMERIC].values.astype(np.float32))
    y = torch.from_numpy(df["click"].values.astype(np.float32))
    # the log is in time order: last 5 % is the validation part
    split = int(len(df) * 0.95)
    train = (cat[:split], num[:split], y[:split])
    valid = (cat[split:], num[split:], y[split:])
    print(f"{split} train rows, CTR {y.mean():.4f}")

    model = ClickModel()
    print("parameters:", sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.BCEWithLogitsLoss()

    best_auc = 0.0
    history = []
    for epoch in range(EPOCHS):
        start = time.time()
        running = 0.0
        for step, (cb, nb, yb) in enumerate(batches(*train, BATCH_SIZE), 1):
            loss = loss_fn(model(cb, nb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            if step % 100 == 0:
                print(f"  epoch {epoch} step {step} logloss {running / step:.5f} ({time.time() - start:.0f}s)")
        auc, ll = evaluate(model, *valid)
        history.append({"epoch": epoch, "train_logloss": running / step, "val_logloss": ll, "val_auc": auc})
        print(f"epoch {epoch}: train {running / step:.5f} val {ll:.5f} auc {auc:.4f}")
        pd.DataFrame(history).to_csv(os.path.join(CACHE, "history.csv"), index=False)
        if auc > best_auc:
            best_auc = auc
            torch.save(model.state_dict(), os.path.join(CACHE, "ctr.pt"))


if __name__ == "__main__":
    main()
