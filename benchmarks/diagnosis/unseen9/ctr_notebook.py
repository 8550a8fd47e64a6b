# %% [markdown]
# # Ad click prediction, entity embeddings + MLP  (v7, LB 0.7812)

# %%
import gc
import os
import random
import tempfile
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")

# %%
class CFG:
    seed = 2023
    folder = os.path.join(tempfile.gettempdir(), "ctr_notebook")
    n_rows = 120_000
    n_num = 14
    cards = {"site": 900, "device": 40, "country": 60, "campaign": 1500, "hour": 24, "weekday": 7}
    bs = 256
    epochs = 200
    lr = 1e-3
    hidden = 1024
    workers = 2
    print_freq = 50


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


NUM_COLS = [f"num_{i}" for i in range(CFG.n_num)]
CAT_COLS = list(CFG.cards)
TARGET = "clicked"


# %%
def build_csv():
    path = os.path.join(CFG.folder, "train.csv")
    if os.path.exists(path):
        return path
    os.makedirs(CFG.folder, exist_ok=True)
    rng = np.random.default_rng(CFG.seed)
    data = {}
    logit = np.zeros(CFG.n_rows)
    for c in NUM_COLS:
        v = rng.gamma(2.0, 2.0, CFG.n_rows)
        data[c] = v.round(4)
        logit += rng.normal(0, 0.12) * v
    for c, card in CFG.cards.items():
        v = rng.zipf(1.4, CFG.n_rows) % card
        eff = rng.normal(0, 0.6, card)
        data[c] = v
        logit += eff[v]
    logit -= np.median(logit) + 0.5
    data[TARGET] = (rng.random(CFG.n_rows) < 1 / (1 + np.exp(-logit))).astype(int)
    tmp = path + ".part"
    pd.DataFrame(data).to_csv(tmp, index=False)
    os.replace(tmp, path)
    return path


def reduce_mem(df):
    before = df.memory_usage().sum() / 1e6
    for c in NUM_COLS:
        df[c] = df[c].astype(np.float32)
    for c in CAT_COLS:
        df[c] = df[c].astype(np.int32)
    print(f"memory {before:.1f} -> {df.memory_usage().sum() / 1e6:.1f} MB")
    return df


# %%
class AdDataset(Dataset):
    def __init__(self, df):
        self.df = df.reset_index(drop=True)

    def __len__(self):
        return len(self.df)

    def __getitem__(self, idx):
        row = self.df.iloc[idx]
        num = row[NUM_COLS].values.astype(np.float32)
        cat = row[CAT_COLS].values.astype(np.int64)
        y = np.float32(row[TARGET])
        return torch.from_numpy(num), torch.from_numpy(cat), torch.tensor(y)


# %%
class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin1 = nn.Linear(d, d)
        self.bn = nn.BatchNorm1d(d)
        self.act = nn.SiLU()

    def forward(self, x):
        return x + self.act(self.bn(self.lin1(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(card, min(50, card // 2 + 1)) for card in CFG.cards.values())
        width = sum(e.embedding_dim for e in self.embs) + CFG.n_num
        self.inp = nn.Linear(width, CFG.hidden)
        self.blocks = nn.Sequential(ResBlock(CFG.hidden), ResBlock(CFG.hidden), ResBlock(CFG.hidden))
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(CFG.hidden, 1)

    def forward(self, num, cat):
        parts = [e(cat[:, i]) for i, e in enumerate(self.embs)]
        x = torch.cat(parts + [num], dim=1)
        x = torch.relu(self.inp(x))
        return self.out(self.drop(self.blocks(x))).squeeze(1)


# %%
class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.count = 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def train_fn(loader, model, criterion, optimizer, scheduler, epoch, device):
    model.train()
    meter = AverageMeter()
    preds, targets = [], []
    for step, (num, cat, y) in enumerate(loader):
        num, cat, y = num.to(device), cat.to(device), y.to(device)
        out = model(num, cat)
        loss = criterion(out, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1000)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        meter.update(loss.item(), y.size(0))
        preds.append(out.sigmoid().detach().cpu().numpy())
        targets.append(y.cpu().numpy())
        if step % CFG.print_freq == 0 or step == len(loader) - 1:
            print(f"Epoch: [{epoch + 1}][{step}/{len(loader)}] Loss: {meter.avg:.4f} "
                  f"LR: {scheduler.get_last_lr()[0]:.6f}", flush=True)
    return meter.avg, roc_auc_score(np.concatenate(targets), np.concatenate(preds))


# %%
def run():
    seed_everything(CFG.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    df = reduce_mem(pd.read_csv(build_csv()))
    df[NUM_COLS] = StandardScaler().fit_transform(np.log1p(df[NUM_COLS])).astype(np.float32)
    ds = AdDataset(df)
    loader = DataLoader(ds, batch_size=CFG.bs, shuffle=True, num_workers=CFG.workers,
                        persistent_workers=True, drop_last=True)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=CFG.lr * 20, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=CFG.epochs * len(loader))
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(CFG.epochs):
        loss, auc = train_fn(loader, model, criterion, optimizer, scheduler, epoch, device)
        print(f"Epoch {epoch + 1} - loss {loss:.4f} - train auc {auc:.4f}")
        gc.collect()


if __name__ == "__main__":
    run()
