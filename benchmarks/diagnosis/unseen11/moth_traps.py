# %% [markdown]
# # Moth traps: how many of each family tonight?
# Light-trap counts from field stations. We predict tonight's counts of 12 families from
# the weather and from the last records of the same station. MLP baseline, LB 0.412

# %%
import gc
import json
import os
import random
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")


class CFG:
    seed = 2024
    n_stations = 110
    nights = 400
    history = 8          # records of the station that go into the features
    n_families = 12
    hidden = 512
    bs = 256
    epochs = 12
    lr = 1e-3
    wd = 1e-4
    print_freq = 50
    root = os.path.join(tempfile.gettempdir(), "moth_traps")


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


seed_everything(CFG.seed)
os.makedirs(CFG.root, exist_ok=True)

# %% [markdown]
# ## Data
# One JSON line per night and station, as it comes from the loggers.

# %%
FAMILIES = ["noctuidae", "geometridae", "erebidae", "sphingidae", "crambidae", "tortricidae",
            "notodontidae", "lasiocampidae", "pyralidae", "saturniidae", "drepanidae", "hepialidae"]


def write_records(path):
    rng = np.random.default_rng(CFG.seed)
    warm = rng.normal(0, 1, CFG.n_families)
    with open(path, "w") as f:
        for s in range(CFG.n_stations):
            site = rng.normal(0, 0.6, CFG.n_families)
            for d in range(CFG.nights):
                season = np.sin(2 * np.pi * d / 365)
                temp = 12 + 7 * season + rng.normal(0, 3)
                wind, moon = rng.gamma(2, 1.5), (d % 29.5) / 29.5
                rate = np.exp(0.8 + site + 0.3 * warm * season + 0.05 * (temp - 12) - 0.1 * wind
                              - 0.5 * moon)
                counts = rng.poisson(np.clip(rate, 0, 200))
                rec = {"station": s, "night": d,
                       "weather": {"temp": round(temp, 1), "wind": round(wind, 1), "moon": round(moon, 3)},
                       "catch": {n: int(c) for n, c in zip(FAMILIES, counts) if c}}
                f.write(json.dumps(rec) + "\n")


path = os.path.join(CFG.root, "records.jsonl")
if not os.path.exists(path):
    write_records(path)
with open(path) as f:
    records = [json.loads(line) for line in f]
print(len(records), "records;", records[0])

# %%
# features: own history + weather
by_station = {}
for r in records:
    by_station.setdefault(r["station"], []).append(r)

X, Y, groups = [], [], []
for s, recs in by_station.items():
    recs = sorted(recs, key=lambda r: r["night"])
    C = np.array([[r["catch"].get(n, 0) for n in FAMILIES] for r in recs], dtype=np.float32)
    W = np.array([[r["weather"]["temp"] / 10, r["weather"]["wind"], r["weather"]["moon"],
                   np.sin(2 * np.pi * r["night"] / 365), np.cos(2 * np.pi * r["night"] / 365)]
                  for r in recs], dtype=np.float32)
    for t in range(CFG.history, len(recs)):
        X.append(np.concatenate([np.log1p(C[t - CFG.history:t]).ravel(), W[t]]))
        Y.append(C[t])
        groups.append(s)
X, Y, groups = np.stack(X), np.stack(Y), np.array(groups)
print(X.shape, Y.shape)
print(pd.DataFrame(Y, columns=FAMILIES).describe().T[["mean", "std", "max"]].round(2))

# %%
fold = groups % 5
tr, va = np.where(fold != 0)[0], np.where(fold == 0)[0]
mu, sd = X[tr].mean(0), X[tr].std(0) + 1e-6
Xt, Yt = torch.from_numpy((X - mu) / sd), torch.from_numpy(Y)

# %% [markdown]
# ## Model


# %%
class MothNet(nn.Module):
    def __init__(self, n_in, n_out, h):
        super().__init__()
        self.inp = nn.Linear(n_in, h)
        self.blocks = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(h), nn.Linear(h, h), nn.SiLU(), nn.Dropout(0.1), nn.Linear(h, h))
            for _ in range(4)])
        self.out = nn.Linear(h, n_out)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = x + b(x)
        return self.out(x)


def evaluate(model, idx):
    model.eval()
    tot = 0.0
    with torch.no_grad():
        for i in range(0, len(idx), 4096):
            j = idx[i:i + 4096]
            tot += F.poisson_nll_loss(model(Xt[j]), Yt[j], reduction="sum").item()
    model.train()
    return tot / len(idx) / CFG.n_families


# %%
model = MothNet(X.shape[1], CFG.n_families, CFG.hidden)
optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.wd)
steps = CFG.epochs * (len(tr) // CFG.bs)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

best = 1e9
history = []
for epoch in range(CFG.epochs):
    st = time.time()
    perm = np.random.permutation(tr)
    for step in range(len(tr) // CFG.bs):
        idx = perm[step * CFG.bs:(step + 1) * CFG.bs]
        xb, yb = Xt[idx], Yt[idx]
        pred = model(xb)
        loss = F.poisson_nll_loss(pred, yb)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        if step % CFG.print_freq == 0:
            print(f"E{epoch} [{step:4d}/{len(tr) // CFG.bs}] loss {np.mean(history[-50:]):.4f} "
                  f"lr {scheduler.get_last_lr()[0]:.2e} {time.time() - st:.0f}s", flush=True)
        del xb, yb, pred, loss
        gc.collect()
    score = evaluate(model, va)
    print(f"=== epoch {epoch} cv {score:.4f} ({time.time() - st:.0f}s)")
    if score < best:
        best = score
        torch.save(model.state_dict(), os.path.join(CFG.root, "best.pth"))
print("best cv", best)
