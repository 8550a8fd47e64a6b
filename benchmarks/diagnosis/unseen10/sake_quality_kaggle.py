# %% [markdown]
# # Sake brewing logs -> tasting score (public LB 0.214, 5-fold)
# Upvote if useful! v14: conv + attention pooling over the fermentation curve, no feature engineering

# %%
import gc
import os
import random
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


# %%
class CFG:
    seed = 2023
    n_fold = 5
    epochs = 60
    bs = 64
    lr = 2e-3
    wd = 1e-4
    hours = 256
    sensors = ["temp", "brix", "alcohol", "acidity", "co2", "amino"]
    hidden = 64
    print_freq = 20
    path = os.path.join(tempfile.gettempdir(), "sake_quality_kaggle")


def seed_everything(s):
    random.seed(s)
    os.environ["PYTHONHASHSEED"] = str(s)
    np.random.seed(s)
    torch.manual_seed(s)


# %%
def make_csv():
    os.makedirs(CFG.path, exist_ok=True)
    rng = np.random.default_rng(CFG.seed)
    n = 4000
    t = np.linspace(0, 1, CFG.hours)
    curve = np.zeros((n, CFG.hours, 6), np.float32)
    k = rng.uniform(2, 9, (n, 1))
    mid = rng.uniform(0.3, 0.7, (n, 1))
    grow = 1 / (1 + np.exp(-k * 2 * (t - mid)))
    curve[..., 0] = 10 + rng.normal(0, 1, (n, 1)) + 4 * np.sin(3 * t + mid)
    curve[..., 1] = 30 * (1 - grow)
    curve[..., 2] = 18 * grow
    curve[..., 3] = 1.2 + 0.4 * grow ** 2
    curve[..., 4] = np.gradient(grow, axis=1) * 100
    curve[..., 5] = rng.uniform(0.5, 2, (n, 1)) * grow
    curve += rng.normal(0, 0.15, curve.shape)
    y = -np.abs(k[:, 0] - 5) * 0.4 + np.sin(6 * mid[:, 0]) + 0.5 * curve[:, -1, 5] + rng.normal(0, 0.15, n)
    np.save(f"{CFG.path}/curves.npy", curve)
    pd.DataFrame({"batch_id": np.arange(n), "score": y.astype(np.float32),
                  "kura": rng.integers(0, 12, n)}).to_csv(f"{CFG.path}/train.csv", index=False)


class SakeDataset(Dataset):
    def __init__(self, df, curves):
        self.ids = df.batch_id.values
        self.y = df.score.values.astype(np.float32)
        self.kura = df.kura.values
        self.curves = curves

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return torch.from_numpy(self.curves[self.ids[i]]), int(self.kura[i]), self.y[i]


# %%
class AttnPool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Sequential(nn.Linear(d, d // 2), nn.Tanh(), nn.Linear(d // 2, 1))

    def forward(self, x):
        a = torch.softmax(self.w(x), dim=1)
        return (a * x).sum(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        h = CFG.hidden
        self.stem = nn.Sequential(nn.Conv1d(len(CFG.sensors), h, 7, padding=3), nn.BatchNorm1d(h), nn.SiLU())
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Conv1d(h, h, 5, padding=2), nn.BatchNorm1d(h), nn.SiLU()) for _ in range(2)])
        self.kura = nn.Embedding(12, 16)
        self.pool = AttnPool(h)
        self.fc = nn.Sequential(nn.Linear(h + 16, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))

    def forward(self, x, kura):
        x = self.stem(x.transpose(1, 2))
        for b in self.blocks:
            x = x + b(x)
        x = self.pool(x.transpose(1, 2))
        return self.fc(torch.cat([x, self.kura(kura)], 1)).squeeze(1)


class AverageMeter:
    def __init__(self):
        self.sum = self.n = 0

    def update(self, v, n):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(self.n, 1)


# %%
def train_fn(fold, epoch, loader, model, criterion, opt, sched):
    model.train()
    losses = AverageMeter()
    start = time.time()
    for step, (x, kura, y) in enumerate(loader):
        pred = model(x, kura)
        loss = criterion(pred, y)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
        opt.step()
        opt.zero_grad()
        sched.step()
        losses.update(loss.item(), len(y))
        if step % CFG.print_freq == 0:
            print(f"[f{fold} e{epoch}][{step}/{len(loader)}] loss {losses.avg:.4f} grad {grad_norm:.3f} "
                  f"lr {sched.get_last_lr()[0]:.2e} {time.time() - start:.1f}s", flush=True)
        del x, kura, y, pred, loss
        gc.collect()
    return losses.avg


def valid_fn(loader, model):
    model.eval()
    out = []
    with torch.no_grad():
        for x, kura, _ in loader:
            out.append(model(x, kura).numpy())
    return np.concatenate(out)


def train_loop(train, curves, fold):
    print(f"========== fold: {fold} training ==========")
    tr, va = train[train.fold != fold].reset_index(drop=True), train[train.fold == fold].reset_index(drop=True)
    tl = DataLoader(SakeDataset(tr, curves), batch_size=CFG.bs, shuffle=True, num_workers=0, pin_memory=False, drop_last=True)
    vl = DataLoader(SakeDataset(va, curves), batch_size=256, shuffle=False)
    model = Net()
    opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.wd)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG.lr, total_steps=CFG.epochs * len(tl))
    criterion = nn.SmoothL1Loss()
    best, oof = np.inf, None
    for epoch in range(CFG.epochs):
        avg = train_fn(fold, epoch, tl, model, criterion, opt, sched)
        pred = valid_fn(vl, model)
        score = mean_squared_error(va.score.values, pred) ** 0.5
        print(f"Epoch {epoch} - avg_train_loss: {avg:.4f}  rmse: {score:.4f}")
        if score < best:
            best, oof = score, pred
            torch.save(model.state_dict(), f"{CFG.path}/fold{fold}_best.pth")
    return va.assign(oof=oof)


# %%
if __name__ == "__main__":
    seed_everything(CFG.seed)
    if not os.path.exists(f"{CFG.path}/train.csv"):
        make_csv()
    train = pd.read_csv(f"{CFG.path}/train.csv")
    curves = np.load(f"{CFG.path}/curves.npy")
    curves = StandardScaler().fit_transform(curves.reshape(-1, 6)).reshape(curves.shape).astype(np.float32)
    for f, (_, idx) in enumerate(KFold(CFG.n_fold, shuffle=True, random_state=CFG.seed).split(train)):
        train.loc[idx, "fold"] = f
    oof = pd.concat([train_loop(train, curves, f) for f in range(CFG.n_fold)])
    print("CV:", mean_squared_error(oof.score, oof.oof) ** 0.5)
