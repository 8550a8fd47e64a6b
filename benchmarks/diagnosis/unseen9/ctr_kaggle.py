# %% [markdown]
# # CTR baseline v7 (wide & deep, LB 0.781)
# exported from the notebook with nbconvert, cells kept in order

# %%
import gc
import os
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import log_loss, roc_auc_score

warnings.filterwarnings("ignore")


class CFG:
    seed = 2023
    rows = 330_000
    bs = 1024
    lr = 2e-3
    epochs = 60
    emb = 8
    hidden = (256, 128)
    dropout = 0.1
    folder = os.path.join(tempfile.gettempdir(), "ctr_kaggle")
    cards = [24, 7, 340, 1200, 5000, 60, 12, 900, 150, 31, 2400, 18]
    n_num = 13


def seed_everything(s):
    np.random.seed(s)
    torch.manual_seed(s)
    os.environ["PYTHONHASHSEED"] = str(s)


# %%
def make_train():
    """the competition data can not be shared, so here is a look-alike"""
    rng = np.random.default_rng(CFG.seed)
    df = pd.DataFrame()
    logit = np.full(CFG.rows, -1.2)
    for i, c in enumerate(CFG.cards):
        v = (rng.pareto(1.2, CFG.rows) * c / 12).astype(np.int64) % c
        df[f"C{i}"] = v.astype(np.int32)
        logit += rng.normal(0, 0.45, c)[v]
    for i in range(CFG.n_num):
        v = rng.lognormal(0, 1, CFG.rows)
        df[f"I{i}"] = v.astype(np.float32)
        logit += rng.normal(0, 0.2) * np.log1p(v)
    df["click"] = (rng.random(CFG.rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return df


def load_train():
    os.makedirs(CFG.folder, exist_ok=True)
    p = os.path.join(CFG.folder, "train.pkl")
    if not os.path.exists(p):
        make_train().to_pickle(p + ".tmp", compression=None)
        os.replace(p + ".tmp", p)
    return pd.read_pickle(p, compression=None)


# %%
class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        offs = np.cumsum([0] + CFG.cards[:-1])
        self.register_buffer("offs", torch.as_tensor(offs))
        self.wide = nn.Embedding(sum(CFG.cards), 1)
        self.deep = nn.Embedding(sum(CFG.cards), CFG.emb)
        nn.init.normal_(self.deep.weight, std=0.02)
        nn.init.zeros_(self.wide.weight)
        layers, d = [], CFG.emb * len(CFG.cards) + CFG.n_num
        for h in CFG.hidden:
            layers += [nn.Linear(d, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(CFG.dropout)]
            d = h
        self.mlp = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, cat, num):
        cat = cat + self.offs
        w = self.wide(cat).sum(1).squeeze(-1)
        e = self.deep(cat).flatten(1)
        return w + self.mlp(torch.cat([e, num], 1)).squeeze(-1)


class Meter:
    """keeps what the model said during the epoch"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.p, self.y = [], []

    def update(self, p, y):
        self.p.append(p.detach().sigmoid().numpy())
        self.y.append(y.numpy())

    @property
    def auc(self):
        return roc_auc_score(np.concatenate(self.y), np.concatenate(self.p))

    @property
    def logloss(self):
        return log_loss(np.concatenate(self.y), np.concatenate(self.p).astype(np.float64))


# %%
def valid_fn(model, cat, num, y):
    model.eval()
    m = Meter()
    with torch.no_grad():
        for i in range(0, len(y), 8192):
            m.update(model(cat[i:i + 8192], num[i:i + 8192]), y[i:i + 8192])
    model.train()
    return m.auc, m.logloss


def train_fn(epoch, model, opt, sched, crit, cat, num, y):
    meter = Meter()
    perm = torch.randperm(len(y))
    t0 = time.time()
    n_batches = len(y) // CFG.bs
    for b in range(n_batches):
        idx = perm[b * CFG.bs:(b + 1) * CFG.bs]
        logits = model(cat[idx], num[idx])
        loss = crit(logits, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        meter.update(logits, y[idx])
        postfix = {"loss": loss.item(), "auc": meter.auc, "lr": opt.param_groups[0]["lr"]}
        if b % 20 == 0:
            speed = (b + 1) * CFG.bs / (time.time() - t0)
            print(f"ep {epoch} {b}/{n_batches} " + " ".join(f"{k}={v:.4f}" for k, v in postfix.items())
                  + f" {speed:,.0f} rows/s", flush=True)
    return meter.auc


# %%
def run():
    seed_everything(CFG.seed)
    train = load_train()
    num_cols = [f"I{i}" for i in range(CFG.n_num)]
    cat_cols = [f"C{i}" for i in range(len(CFG.cards))]
    train[num_cols] = np.log1p(train[num_cols])
    train[num_cols] = (train[num_cols] - train[num_cols].mean()) / train[num_cols].std()
    cat = torch.from_numpy(train[cat_cols].values.astype(np.int64))
    num = torch.from_numpy(train[num_cols].values.astype(np.float32))
    y = torch.from_numpy(train["click"].values.astype(np.float32))
    del train
    gc.collect()
    cut = len(y) - 20_000

    model = WideDeep()
    opt = torch.optim.Adam(model.parameters(), lr=CFG.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=CFG.epochs * (cut // CFG.bs))
    crit = nn.BCEWithLogitsLoss()
    best = 0.0
    for epoch in range(CFG.epochs):
        tr = train_fn(epoch, model, opt, sched, crit, cat[:cut], num[:cut], y[:cut])
        va, ll = valid_fn(model, cat[cut:], num[cut:], y[cut:])
        print(f"== epoch {epoch} train auc {tr:.4f} valid auc {va:.4f} logloss {ll:.4f}", flush=True)
        if va > best:
            best = va
            torch.save(model.state_dict(), os.path.join(CFG.folder, "best.pth"))
        gc.collect()


if __name__ == "__main__":
    run()
