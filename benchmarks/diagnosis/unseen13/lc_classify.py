"""Photometric classification of transients from multi-band light curves.

First attempt before trying anything fancy: interpolate every band on a common
phase grid and throw a 1D CNN at it.  Same column names as the PLAsTiCC tables.
"""
import os
import tempfile
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DATA_DIR = os.path.join(tempfile.gettempdir(), "lc_classify")
BANDS = ["u", "g", "r", "i", "z", "y"]
CLASSES = ["SNIa", "SNII", "SNIbc", "RRLyr", "EB", "AGN"]
NGRID = 128
N_OBJ = 3500
BATCH = 64
EPOCHS = 40

rng = np.random.default_rng(42)


def fake_flux(cls, t, band):
    """very rough shapes, good enough to test the pipeline"""
    t0 = rng.uniform(300, 700)
    amp = rng.lognormal(3.0, 0.4)
    col = 1.0 + 0.15 * (band - 2.5) * (1 if cls % 2 else -1)
    if cls in (0, 1, 2):
        rise = [8, 5, 6][cls]
        fall = [25, 80, 35][cls]
        x = t - t0
        return amp * col * np.exp(-np.clip(x, 0, None) / fall) / (1 + np.exp(-x / rise))
    if cls == 3:
        ph = (t / rng.uniform(40, 60)) % 1
        return amp * col * (1 - ph) ** 2
    if cls == 4:
        ph = (t / rng.uniform(60, 90)) % 1
        return amp * col * (1 - 0.6 * np.exp(-((ph - 0.5) / 0.08) ** 2))
    return amp * col * (1 + 0.2 * np.cumsum(rng.normal(0, 0.3, len(t))))


def make_tables():
    os.makedirs(DATA_DIR, exist_ok=True)
    lc_file = os.path.join(DATA_DIR, "training_set.parquet")
    meta_file = os.path.join(DATA_DIR, "training_set_metadata.csv")
    if os.path.exists(lc_file) and os.path.exists(meta_file):
        return pd.read_parquet(lc_file), pd.read_csv(meta_file)

    frames, meta = [], []
    ids = rng.choice(10_000_000, N_OBJ, replace=False)
    for oid in ids:
        n = rng.integers(180, 320)
        cls = rng.integers(len(CLASSES))
        mjd = np.sort(rng.uniform(0, 1000, n))
        band = rng.integers(0, 6, n)
        flux = fake_flux(cls, mjd, band) + rng.normal(0, 1.5, n)
        frames.append(pd.DataFrame({
            "object_id": oid, "mjd": mjd, "passband": band,
            "flux": flux, "flux_err": rng.uniform(1, 2, n),
        }))
        meta.append((oid, CLASSES[cls], rng.uniform(0.01, 0.5)))
    lc = pd.concat(frames, ignore_index=True)
    meta = pd.DataFrame(meta, columns=["object_id", "target", "mwebv"])
    lc.to_parquet(lc_file)
    meta.to_csv(meta_file, index=False)
    return lc, meta


class LightCurves(Dataset):
    def __init__(self, lc, meta):
        self.lc = lc
        self.meta = meta.reset_index(drop=True)
        self.grid = np.linspace(0, 1000, NGRID)

    def __len__(self):
        return len(self.meta)

    def __getitem__(self, i):
        row = self.meta.iloc[i]
        obj = self.lc[self.lc["object_id"] == row["object_id"]]

        mjd = obj["mjd"].values
        flux = obj["flux"].values
        band = obj["passband"].values

        x = np.zeros((len(BANDS), NGRID), dtype=np.float32)
        for b in range(len(BANDS)):
            m = band == b
            if m.sum() > 1:
                x[b] = np.interp(self.grid, mjd[m], flux[m])
        x = np.arcsinh(x / 5.0)
        y = CLASSES.index(row["target"])
        return torch.from_numpy(x), y


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.c1 = nn.Conv1d(len(BANDS), width, 7, padding=3)
        self.c2 = nn.Conv1d(width, width, 5, padding=2)
        self.c3 = nn.Conv1d(width, 2 * width, 5, padding=2)
        self.b1 = nn.BatchNorm1d(width)
        self.b2 = nn.BatchNorm1d(width)
        self.b3 = nn.BatchNorm1d(2 * width)
        self.fc = nn.Linear(2 * width, len(CLASSES))

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool1d(F.relu(self.b2(self.c2(x))), 2)
        x = F.relu(self.b3(self.c3(x)))
        return self.fc(x.mean(-1))


if __name__ == "__main__":
    torch.manual_seed(0)
    lc, meta = make_tables()
    print(len(lc), "observations of", len(meta), "objects")
    print(meta["target"].value_counts())

    val = meta.sample(frac=0.1, random_state=1)
    train = meta.drop(val.index)
    train_dl = DataLoader(LightCurves(lc, train), batch_size=BATCH, shuffle=True)
    val_dl = DataLoader(LightCurves(lc, val), batch_size=BATCH)

    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    for epoch in range(EPOCHS):
        t0 = time.time()
        net.train()
        tot = 0.0
        for x, y in train_dl:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            tot += loss.item() * len(y)

        if epoch % 5 == 4:
            net.eval()
            ok = 0
            with torch.no_grad():
                for x, y in val_dl:
                    ok += (net(x).argmax(1) == y).sum().item()
            print(f"   val acc {ok / len(val):.3f}")
        print(f"epoch {epoch:3d} loss {tot / len(train):.4f}  ({time.time() - t0:.1f} s)", flush=True)

    torch.save(net.state_dict(), os.path.join(DATA_DIR, "net.pt"))
