"""Store sales forecasting: 16 days ahead for each (store, family), seq2seq GRU, RMSLE."""
import os
import random
import tempfile
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class CFG:
    path = os.path.join(tempfile.gettempdir(), "store_sales_aa")
    n_stores = 30
    n_families = 20
    n_days = 720
    history = 120
    horizon = 16
    hidden = 96
    emb = 8
    epochs = 25
    bs = 128
    steps_per_epoch = 150
    lr = 2e-3
    teacher_forcing = 0.5
    clip = 1.0
    ema = 0.995
    seed = 2016


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_sales():
    rng = np.random.default_rng(CFG.seed)
    dates = pd.date_range("2015-01-01", periods=CFG.n_days)
    dow, doy = dates.day_of_week.values, dates.day_of_year.values
    frames = []
    for s in range(CFG.n_stores):
        size = rng.lognormal(0, 0.5)
        for f in range(CFG.n_families):
            week = 1 + 0.4 * np.sin(2 * np.pi * (dow + rng.uniform(0, 7)) / 7)
            year = 1 + 0.3 * np.sin(2 * np.pi * (doy + rng.uniform(0, 365)) / 365)
            promo = (rng.random(CFG.n_days) < 0.12).astype(int)
            mean = 20 * size * rng.lognormal(0, 0.7) * week * year * (1 + 0.6 * promo)
            frames.append(pd.DataFrame({"date": dates, "store_nbr": s, "family": f,
                                        "onpromotion": promo, "sales": rng.poisson(mean)}))
    return pd.concat(frames)


def load():
    file = os.path.join(CFG.path, "train.parquet")
    if not os.path.exists(file):
        os.makedirs(CFG.path, exist_ok=True)
        make_sales().to_parquet(file, index=False)
    df = pd.read_parquet(file).sort_values(["store_nbr", "family", "date"])
    n = CFG.n_stores * CFG.n_families
    sales = np.log1p(df["sales"].values.astype(np.float32)).reshape(n, CFG.n_days)
    promo = df["onpromotion"].values.astype(np.float32).reshape(n, CFG.n_days)
    date = df["date"].iloc[:CFG.n_days]
    dow = np.eye(7, dtype=np.float32)[date.dt.day_of_week.values]
    day = date.dt.day_of_year.values[:, None] * 2 * np.pi / 365
    cal = np.concatenate([dow, np.sin(day), np.cos(day)], axis=1).astype(np.float32)
    ids = df[["store_nbr", "family"]].values.reshape(n, CFG.n_days, 2)[:, 0].copy()
    return sales, promo, cal, ids


class SalesDataset(Dataset):
    """random windows for training, the last window of each series for validation"""

    def __init__(self, data, train):
        self.sales, self.promo, self.cal, self.ids = data
        self.train = train

    def __len__(self):
        return CFG.bs * CFG.steps_per_epoch if self.train else len(self.sales)

    def __getitem__(self, i):
        window = CFG.history + CFG.horizon
        if self.train:
            i = np.random.randint(len(self.sales))
            start = np.random.randint(CFG.n_days - CFG.horizon - window)
        else:
            start = CFG.n_days - window
        sl = slice(start, start + window)
        y = self.sales[i, sl]
        level = y[:CFG.history].mean()
        known = np.concatenate([self.promo[i, sl][:, None], self.cal[sl]], axis=1)
        return torch.from_numpy(y - level), torch.from_numpy(known), torch.from_numpy(self.ids[i]), level


class Seq2Seq(nn.Module):
    def __init__(self, n_known=10):
        super().__init__()
        self.store_emb = nn.Embedding(CFG.n_stores, CFG.emb)
        self.family_emb = nn.Embedding(CFG.n_families, CFG.emb)
        n_in = 1 + n_known + 2 * CFG.emb
        self.encoder = nn.GRUCell(n_in, CFG.hidden)
        self.decoder = nn.GRUCell(n_in, CFG.hidden)
        self.out = nn.Sequential(nn.Linear(CFG.hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, y, known, ids, teacher_forcing=0.0):
        static = torch.cat([self.store_emb(ids[:, 0]), self.family_emb(ids[:, 1])], dim=1)
        h = torch.zeros(y.size(0), CFG.hidden)

        # encoder reads yesterday's sales and what is known about today
        for t in range(1, CFG.history):
            x = torch.cat([y[:, t - 1:t], known[:, t], static], dim=1)
            h = self.encoder(x, h)

        # decoder, feeds back its own forecasts
        last = y[:, CFG.history - 1:CFG.history]
        preds = []
        for t in range(CFG.history, CFG.history + CFG.horizon):
            x = torch.cat([last, known[:, t], static], dim=1)
            h = self.decoder(x, h)
            pred = self.out(h)
            preds.append(pred)
            last = y[:, t:t + 1] if self.training and random.random() < teacher_forcing else pred
        return torch.cat(preds, dim=1)


class EMA:
    def __init__(self, model):
        self.avg = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for n, p in model.named_parameters():
            self.avg[n].lerp_(p, 1 - CFG.ema)

    def swap(self, model):
        for n, p in model.named_parameters():
            p.data, self.avg[n] = self.avg[n], p.data


@torch.no_grad()
def validate(model, loader):
    model.eval()
    err = []
    for y, known, ids, level in loader:
        pred = model(y, known, ids) + level[:, None]
        true = y[:, -CFG.horizon:] + level[:, None]
        err.append((pred.clamp(min=0) - true) ** 2)
    return torch.cat(err).mean().sqrt().item()


def main():
    seed_everything(CFG.seed)
    data = load()
    train_loader = DataLoader(SalesDataset(data, True), batch_size=CFG.bs)
    valid_loader = DataLoader(SalesDataset(data, False), batch_size=CFG.bs * 2)
    model = Seq2Seq()
    ema = EMA(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, CFG.lr, epochs=CFG.epochs,
                                                    steps_per_epoch=len(train_loader), pct_start=0.1)
    best = np.inf
    for epoch in range(CFG.epochs):
        model.train()
        start, total = time.time(), 0.0
        for step, (y, known, ids, level) in enumerate(train_loader, 1):
            pred = model(y, known, ids, CFG.teacher_forcing)
            loss = nn.functional.mse_loss(pred, y[:, -CFG.horizon:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CFG.clip)
            optimizer.step()
            scheduler.step()
            ema.update(model)
            total += loss.item()
            if step % 10 == 0:
                print(f"  {epoch:02d} {step:4d}/{len(train_loader)} loss {total / step:.4f} "
                      f"({(time.time() - start) / step * 1000:.0f} ms/step)", flush=True)
        ema.swap(model)
        rmsle = validate(model, valid_loader)
        print(f"epoch {epoch:02d} train {total / len(train_loader):.4f} valid RMSLE {rmsle:.4f}", flush=True)
        if rmsle < best:
            best = rmsle
            torch.save(model.state_dict(), os.path.join(CFG.path, "best.pt"))
        ema.swap(model)
    print("best RMSLE", best)


if __name__ == "__main__":
    main()
