# %% [markdown]
# # Hive weight forecast
# One week of scale + climate readings -> weight of the next day. Converted from the notebook.

# %%
import os
import sqlite3
import tempfile
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


class CFG:
    folder = os.path.join(tempfile.gettempdir(), "beehive_forecast")
    db = os.path.join(folder, "hives.sqlite")
    n_hives = 120
    n_hours = 2400
    history = 168
    horizon = 24
    batch_size = 16
    hidden = 96
    lr = 1e-3
    epochs = 300
    num_workers = 2
    seed = 2024
    print_every = 20


# %%
SCHEMA = """
CREATE TABLE readings (
    id INTEGER PRIMARY KEY,
    hive TEXT NOT NULL,
    hour INTEGER NOT NULL,
    weight REAL, inside REAL, outside REAL, humidity REAL
);
CREATE TABLE hives (hive TEXT PRIMARY KEY, apiary TEXT, frames INTEGER);
"""


def build_db():
    if os.path.exists(CFG.db):
        return
    os.makedirs(CFG.folder, exist_ok=True)
    rng = np.random.default_rng(CFG.seed)
    t = np.arange(CFG.n_hours)
    weather = 14 + 7 * np.sin(t / 24 * 2 * np.pi) + np.cumsum(rng.normal(0, 0.15, CFG.n_hours))
    frames = []
    for h in range(CFG.n_hives):
        gain = np.clip(weather - 12, 0, None) * rng.uniform(0.001, 0.01)
        weight = 30 + rng.uniform(-5, 5) + np.cumsum(gain - 0.012) + 0.15 * np.sin(t / 24 * 2 * np.pi + 1)
        frames.append(pd.DataFrame({
            "hive": f"hive-{h:03d}", "hour": t, "weight": weight + rng.normal(0, 0.03, len(t)),
            "inside": 34 + rng.normal(0, 0.4, len(t)), "outside": weather + rng.normal(0, 0.5, len(t)),
            "humidity": 60 + 10 * np.cos(t / 24 * 2 * np.pi) + rng.normal(0, 3, len(t)),
        }))
    # readings arrive in order of time, all hives interleaved
    df = pd.concat(frames).sort_values(["hour", "hive"])
    con = sqlite3.connect(CFG.db + ".tmp")
    con.executescript(SCHEMA)
    df.to_sql("readings", con, if_exists="append", index=False)
    con.executemany("INSERT INTO hives VALUES (?,?,?)",
                    [(f"hive-{h:03d}", f"A{h % 7}", int(rng.integers(8, 20))) for h in range(CFG.n_hives)])
    con.commit()
    con.close()
    os.rename(CFG.db + ".tmp", CFG.db)


# %%
class HiveDataset(Dataset):
    QUERY = ("SELECT weight, inside, outside, humidity FROM readings "
             "WHERE hive = ? AND hour >= ? AND hour < ? ORDER BY hour")

    def __init__(self, stride=36):
        with sqlite3.connect(CFG.db) as con:
            hives = pd.read_sql("SELECT * FROM hives", con)
        self.span = CFG.history + CFG.horizon
        self.items = [(h, s) for h in hives.hive for s in range(0, CFG.n_hours - self.span, stride)]
        self.con = None

    def _connection(self):
        # one connection for each worker
        if self.con is None:
            self.con = sqlite3.connect(f"file:{CFG.db}?mode=ro", uri=True)
            self.con.execute("PRAGMA mmap_size = 268435456")
            self.con.execute("PRAGMA cache_size = -65536")
        return self.con

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        hive, start = self.items[i]
        rows = self._connection().execute(self.QUERY, (hive, start, start + self.span)).fetchall()
        a = np.asarray(rows, dtype=np.float32)
        ref = a[CFG.history - 1, 0]
        a[:, 0] -= ref
        a[:, 1:] = (a[:, 1:] - (34, 14, 60)) / (1, 7, 10)
        return torch.from_numpy(a[:CFG.history]), torch.from_numpy(a[CFG.history:, 0])


# %%
class HiveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, CFG.hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(CFG.hidden, 64), nn.ReLU(), nn.Linear(64, CFG.horizon))

    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[-1])


def seed_everything(s):
    np.random.seed(s)
    torch.manual_seed(s)


# %%
def run():
    seed_everything(CFG.seed)
    build_db()
    ds = HiveDataset()
    print(len(ds), "windows")
    dl = DataLoader(ds, CFG.batch_size, shuffle=True, num_workers=CFG.num_workers, drop_last=True,
                    persistent_workers=True, prefetch_factor=4)
    model = HiveNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=CFG.epochs * len(dl))
    losses = []
    for epoch in range(CFG.epochs):
        model.train()
        for step, (x, y) in enumerate(dl):
            pred = model(x)
            loss = nn.L1Loss()(pred, y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if step % CFG.print_every == 0:
                print(f"Epoch [{epoch + 1}/{CFG.epochs}] step {step}/{len(dl)} loss {np.mean(losses[-CFG.print_every:]):.4f} "
                      f"lr {scheduler.get_last_lr()[0]:.2e}", flush=True)


# %%
if __name__ == "__main__":
    run()
