"""Daily unit sales per store and item: GRU forecast of the coming week.

Turned into a script from the notebook 03_demand_gru.ipynb.
"""
import os
import tempfile

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

DATA_DIR = os.path.join(tempfile.gettempdir(), "store_demand")
N_STORES, N_ITEMS, N_DAYS = 12, 40, 730
HISTORY, HORIZON = 56, 7
BATCH_SIZE = 64
EPOCHS = 30
PATIENCE = 6
FEATURES = ["units_scaled", "price_scaled", "promo", "dow_sin", "dow_cos", "doy_sin", "doy_cos"]


def make_data(path):
    rng = np.random.default_rng(7)
    days = pd.date_range("2021-01-01", periods=N_DAYS, freq="D")
    dow = days.dayofweek.values
    doy = days.dayofyear.values
    frames = []
    for store in range(N_STORES):
        traffic = rng.uniform(0.6, 1.6)
        weekend = rng.uniform(1.1, 1.6)
        for item in range(N_ITEMS):
            base = rng.gamma(3.0, 4.0) * traffic
            season = 1 + 0.3 * np.sin(2 * np.pi * (doy / 365 + rng.uniform()))
            price = np.round(rng.uniform(1, 20) * (1 + 0.05 * rng.standard_normal(N_DAYS).cumsum() / 10), 2)
            promo = (rng.random(N_DAYS) < 0.06).astype(int)
            level = base * season * np.where(dow >= 5, weekend, 1.0) * (1 + 0.8 * promo)
            frames.append(pd.DataFrame({
                "date": days, "store": store, "item": item,
                "units": rng.poisson(level), "price": price, "promo": promo}))
    df = pd.concat(frames).sort_values(["date", "store", "item"])
    df.to_csv(path, index=False)


def load():
    os.makedirs(DATA_DIR, exist_ok=True)
    path = os.path.join(DATA_DIR, "sales.csv")
    if not os.path.exists(path):
        make_data(path)
    df = pd.read_csv(path, parse_dates=["date"])
    return df


def add_features(df):
    df["day"] = (df["date"] - df["date"].min()).dt.days
    grp = df.groupby(["store", "item"])
    df["units_mean"] = grp["units"].transform("mean")
    df["units_scaled"] = df["units"] / (df["units_mean"] + 1)
    df["price_scaled"] = df["price"] / grp["price"].transform("mean") - 1
    dow = df["date"].dt.dayofweek
    doy = df["date"].dt.dayofyear
    df["dow_sin"] = np.sin(2 * np.pi * dow / 7)
    df["dow_cos"] = np.cos(2 * np.pi * dow / 7)
    df["doy_sin"] = np.sin(2 * np.pi * doy / 365)
    df["doy_cos"] = np.cos(2 * np.pi * doy / 365)
    return df


class SalesDataset(Dataset):
    """One sample = one (store, item) series, HISTORY days in and HORIZON days out."""

    def __init__(self, df, first_day, last_day, stride):
        self.df = df
        self.index = []
        for store in sorted(df["store"].unique()):
            for item in sorted(df["item"].unique()):
                for start in range(first_day, last_day - HISTORY - HORIZON + 1, stride):
                    self.index.append((store, item, start))

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        store, item, start = self.index[i]
        series = self.df[(self.df["store"] == store) & (self.df["item"] == item)]
        past = series.iloc[start:start + HISTORY]
        future = series.iloc[start + HISTORY:start + HISTORY + HORIZON]
        x = torch.tensor(past[FEATURES].values, dtype=torch.float32)
        promo = torch.tensor(future["promo"].values, dtype=torch.float32)
        y = torch.tensor(future["units_scaled"].values, dtype=torch.float32)
        scale = float(past["units_mean"].iloc[0]) + 1
        return {"x": x, "promo": promo, "store": int(store), "item": int(item), "y": y, "scale": scale}


class DemandGRU(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.store_emb = nn.Embedding(N_STORES, 8)
        self.item_emb = nn.Embedding(N_ITEMS, 16)
        self.gru = nn.GRU(len(FEATURES), hidden, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(hidden + 8 + 16 + HORIZON, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, HORIZON))

    def forward(self, x, promo, store, item):
        out, _ = self.gru(x)
        z = torch.cat([out[:, -1], self.store_emb(store), self.item_emb(item), promo], dim=1)
        return self.head(z)


def run_validation(model, loader):
    model.eval()
    preds, actual = [], []
    with torch.no_grad():
        for batch in loader:
            out = model(batch["x"], batch["promo"], batch["store"], batch["item"])
            scale = batch["scale"].unsqueeze(1)
            preds.append((out * scale).numpy())
            actual.append((batch["y"] * scale).numpy())
    return np.abs(np.concatenate(actual) - np.concatenate(preds)).mean()


def main():
    torch.manual_seed(0)
    df = add_features(load())
    cut = N_DAYS - 120
    train_ds = SalesDataset(df, 0, cut, stride=5)
    val_ds = SalesDataset(df, cut - HISTORY, N_DAYS, stride=28)
    print(f"{len(df)} rows, {len(train_ds)} training windows, {len(val_ds)} validation windows")
    train_dl = DataLoader(train_ds, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    val_dl = DataLoader(val_ds, batch_size=256)

    model = DemandGRU()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    criterion = nn.SmoothL1Loss()

    best, bad_epochs = float("inf"), 0
    for epoch in range(EPOCHS):
        model.train()
        losses = []
        bar = tqdm(train_dl, desc=f"epoch {epoch}", mininterval=1.0)
        for batch in bar:
            opt.zero_grad()
            out = model(batch["x"], batch["promo"], batch["store"], batch["item"])
            loss = criterion(out, batch["y"])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
            bar.set_postfix(loss=np.mean(losses[-50:]), refresh=False)
        mae = run_validation(model, val_dl)
        print(f"epoch {epoch}: train {np.mean(losses):.4f}  val MAE {mae:.3f} units")
        if mae < best:
            best, bad_epochs = mae, 0
            torch.save(model.state_dict(), os.path.join(DATA_DIR, "demand_gru.pt"))
        else:
            bad_epochs += 1
            if bad_epochs >= PATIENCE:
                print("early stopping")
                break
    print(f"best MAE {best:.3f}")


if __name__ == "__main__":
    main()
