# %% [markdown]
# # Will this possession end in a try?
# v14: deeper MLP on the lagged features, focal-ish loss, EMA off. CV 0.8741 / LB 0.871

# %%
import os
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


class CFG:
    seed = 42
    n_rows = 60_000
    n_lags = 6
    hidden = 768
    n_blocks = 3
    bs = 512
    lr = 1e-3
    wd = 1e-2
    epochs = 12
    swap_p = 0.1
    path = os.path.join(tempfile.gettempdir(), "rugby_tries")


np.random.seed(CFG.seed)
torch.manual_seed(CFG.seed)

# %%
BASE = ["x", "y", "speed", "phase", "ruck_time", "tackles", "offloads", "kicks",
        "metres", "breaks", "pen_for", "pen_against", "score_diff", "clock", "wind", "rain"]


def make_data():
    os.makedirs(CFG.path, exist_ok=True)
    f = os.path.join(CFG.path, "train.parquet")
    if not os.path.exists(f):
        rng = np.random.default_rng(CFG.seed)
        df = pd.DataFrame(rng.normal(size=(CFG.n_rows, len(BASE))).astype("float32"), columns=BASE)
        df["match_id"] = np.sort(rng.integers(0, 300, CFG.n_rows))
        z = df["x"] * 0.9 + df["breaks"] * df["speed"] * 0.6 - df["rain"].abs() * 0.5 + df["metres"] * 0.3
        df["is_try"] = (z + rng.normal(size=CFG.n_rows) > 1.2).astype("int64")
        df.to_parquet(f + ".tmp")
        os.replace(f + ".tmp", f)
    return pd.read_parquet(f)


df = make_data()
print(df.shape, "try rate", round(df.is_try.mean(), 4))

# %% lag features within the match
parts = [df[BASE]]
g = df.groupby("match_id")[BASE]
for lag in range(1, CFG.n_lags):
    parts.append(g.shift(lag).fillna(0).add_suffix(f"_lag{lag}"))
feats = pd.concat(parts, axis=1)
FEATURES = list(feats.columns)
X = feats.values.astype("float32")
X = (X - X.mean(0)) / (X.std(0) + 1e-6)
y = df.is_try.values.astype("float32")
print(len(FEATURES), "features")

is_val = (df.match_id.values % 12) == 0
tr_idx, va_idx = np.where(~is_val)[0], np.where(is_val)[0][:4096]


# %%
class PossessionDataset(Dataset):
    """Swap noise: with probability swap_p per value, take it from another row."""

    def __init__(self, X, y, train=True):
        self.X = X
        self.y = y
        self.train = train

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        row = self.X[i]
        if self.train:
            other = self.X[np.random.randint(len(self.X))]
            row = np.where(np.random.rand(len(row)) < CFG.swap_p, other, row)
        return row, self.y[i]


def collate(samples):
    rows, targets = zip(*samples)
    return torch.from_numpy(np.stack(rows)), torch.from_numpy(np.array(targets, dtype=np.float32))


train_dl = DataLoader(PossessionDataset(X[tr_idx], y[tr_idx]), batch_size=CFG.bs, shuffle=True,
                      drop_last=True, num_workers=0, collate_fn=collate)
val_dl = DataLoader(PossessionDataset(X[va_idx], y[va_idx], train=False), batch_size=1024,
                    num_workers=0, collate_fn=collate)


# %%
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 2 * d)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.fc2(self.act(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(len(FEATURES), CFG.hidden)
        self.blocks = nn.ModuleList([Block(CFG.hidden) for _ in range(CFG.n_blocks)])
        self.head = nn.Linear(CFG.hidden, 1)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.head(torch.relu(x)).squeeze(-1)


model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.wd, fused=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG.lr, epochs=CFG.epochs, steps_per_epoch=len(train_dl))
crit = nn.BCEWithLogitsLoss()
print("params:", sum(p.numel() for p in model.parameters()))

# %%
best = 0
history = []
for epoch in range(CFG.epochs):
    model.train()
    t0 = time.time()
    for it, (xb, yb) in enumerate(train_dl):
        opt.zero_grad()
        logits = model(xb)
        loss = crit(logits, yb)
        loss.backward()
        gn = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        history.append({"epoch": epoch, "it": it, "loss": loss.item(), "gn": gn.item(), "lr": sched.get_last_lr()[0]})
        print(f"\r[{epoch}] {it + 1}/{len(train_dl)} loss {np.mean([h['loss'] for h in history[-50:]]):.4f}", end="", flush=True)

    model.eval()
    preds, gts = [], []
    with torch.no_grad():
        for xb, yb in val_dl:
            preds.append(torch.sigmoid(model(xb)).numpy())
            gts.append(yb.numpy())
    auc = roc_auc_score(np.concatenate(gts), np.concatenate(preds))
    print(f"\n[{epoch}] val AUC {auc:.4f} in {time.time() - t0:.0f}s")
    if auc > best:
        best = auc
        torch.save(model.state_dict(), os.path.join(CFG.path, "best.pth"))
    pd.DataFrame(history).to_csv("history.csv", index=False)

print("best", best)
