# Streamflow for a set of small catchments (LSTM on daily forcing)
# -----------------------------------------------------------------
# First version in Python. In R this was tidyverse + keras; each catchment
# is one table, like the .rds files we had on the server.

import datetime as dt
import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

set_seed = 1805
data_dir = os.path.join(tempfile.gettempdir(), "basinflow")
n_basins = 40
seq_len = 180
forcing = ["prcp", "tmax", "tmin", "srad", "vp", "swe", "pet", "dayl"]
static = ["area", "slope", "elev", "frac_forest", "clay", "aridity"]


# ---- data ------------------------------------------------------------------

def simulate_basin(rng, dates):
    n = len(dates)
    doy = dates.dayofyear.to_numpy()
    season = np.sin(2 * np.pi * (doy - 105) / 365.25)
    prcp = rng.gamma(0.6, 9, n) * (rng.random(n) < 0.4)
    tmean = rng.uniform(5, 14) + rng.uniform(8, 13) * season + 2.5 * rng.standard_normal(n)
    pet = np.clip(1.8 + 1.6 * season, 0.1, None)
    k = rng.uniform(0.02, 0.15)
    swe, store, q, snow = 0.0, 40.0, np.zeros(n), np.zeros(n)
    for i in range(n):
        if tmean[i] < 0:
            swe += prcp[i]
            water = 0.0
        else:
            melt = min(swe, 2.5 * tmean[i])
            swe -= melt
            water = prcp[i] + melt
        store = max(store + water - 0.7 * pet[i], 0.0)
        q[i] = k * store
        store -= q[i]
        snow[i] = swe
    return pd.DataFrame({
        "date": dates, "prcp": prcp, "tmax": tmean + 5, "tmin": tmean - 5,
        "srad": 180 + 120 * season + 20 * rng.standard_normal(n),
        "vp": 800 * np.exp(0.06 * tmean), "swe": snow, "pet": pet,
        "dayl": 43200 + 11000 * season, "qobs": q * np.exp(0.05 * rng.standard_normal(n)),
        "quality": rng.choice(["A", "B", "E"], n, p=[0.9, 0.07, 0.03])})


def make_data():
    os.makedirs(data_dir, exist_ok=True)
    rng = np.random.default_rng(set_seed)
    dates = pd.date_range("1990-01-01", "2014-12-31")
    ids = [f"B{1001 + i}" for i in range(n_basins)]
    attributes = pd.DataFrame(rng.random((n_basins, len(static))), columns=static)
    attributes.insert(0, "basin", ids)
    for b in ids:
        simulate_basin(rng, dates).to_parquet(os.path.join(data_dir, b + ".parquet"))
    attributes.to_csv(os.path.join(data_dir, "attributes.csv"), index=False)


if not os.path.exists(os.path.join(data_dir, "attributes.csv")):
    make_data()


def read_basin(basin):
    tbl = pd.read_parquet(os.path.join(data_dir, basin + ".parquet"))
    tbl = tbl.sort_values("date")
    return tbl


attributes = pd.read_csv(os.path.join(data_dir, "attributes.csv")).set_index("basin")
attributes = (attributes - attributes.mean()) / attributes.std()

# scaling from the calibration period of all basins
calib = pd.concat([read_basin(b).query("date < '2008-01-01'") for b in attributes.index])
centre = calib[forcing].mean().to_numpy(np.float32)
scale = calib[forcing].std().to_numpy(np.float32)
q_sd = float(calib["qobs"].std())
n_calib = len(calib) // n_basins
del calib


class Catchments(Dataset):
    """Windows of seq_len days; the target is the flow on the last day."""

    def __init__(self, first, last, by):
        self.samples = [(b, i) for b in attributes.index
                        for i in range(first, last - seq_len, by)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, k):
        basin, i = self.samples[k]
        tbl = read_basin(basin)
        window = tbl.iloc[i:i + seq_len]
        x = (window[forcing].to_numpy(np.float32) - centre) / scale
        s = attributes.loc[basin].to_numpy(np.float32)
        y = np.float32(window["qobs"].iloc[-1] / q_sd)
        return torch.from_numpy(x), torch.from_numpy(s), torch.tensor(y)


# ---- model -----------------------------------------------------------------

class Flow(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.lstm = nn.LSTM(len(forcing) + len(static), hidden, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, s):
        s = s.unsqueeze(1).expand(-1, x.shape[1], -1)
        h, _ = self.lstm(torch.cat([x, s], dim=2))
        return self.out(self.drop(h[:, -1])).squeeze(1)


def nse(sim, obs):
    return 1 - np.sum((sim - obs) ** 2) / np.sum((obs - obs.mean()) ** 2)


# ---- training --------------------------------------------------------------

torch.manual_seed(set_seed)
train = DataLoader(Catchments(0, n_calib, by=15), batch_size=32, shuffle=True)
valid = DataLoader(Catchments(n_calib, n_calib + 2500, by=90), batch_size=128)

model = Flow()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
results = []

for epoch in range(1, 13):
    model.train()
    losses = []
    for step, (x, s, y) in enumerate(train, 1):
        opt.zero_grad()
        loss = ((model(x, s) - y) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        if step % 25 == 0:
            print(f"[{dt.datetime.now():%H:%M:%S}] epoch {epoch} step {step}/{len(train)} "
                  f"mse {np.mean(losses[-25:]):.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        both = [(model(x, s).numpy(), y.numpy()) for x, s, y in valid]
    sim, obs = (np.concatenate(v) for v in zip(*both))
    results.append({"epoch": epoch, "mse": np.mean(losses), "nse": nse(sim, obs)})
    print(pd.DataFrame(results).tail(1).to_string(index=False), flush=True)

pd.DataFrame(results).to_csv(os.path.join(data_dir, "results.csv"), index=False)
