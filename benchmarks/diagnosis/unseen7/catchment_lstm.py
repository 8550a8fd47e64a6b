"""
Daily streamflow for a set of catchments with one regional LSTM.
Forcings (P, T, PET, radiation, vapour pressure) + static attributes -> Q at the last day.
The "observed" discharge is produced with a small bucket model so that the script is self-contained.
"""
import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FORCINGS = ["precip", "tmean", "pet", "srad", "vp"]
STATICS = ["area_km2", "slope", "forest_frac", "clay_frac", "aridity"]


def simulate_catchment(rng, dates, attrs):
    n = len(dates)
    doy = dates.day_of_year.to_numpy()
    season = np.sin(2 * np.pi * (doy - 110) / 365.25)
    wet = rng.random(n) < 0.35 - 0.1 * attrs["aridity"] * season
    precip = np.where(wet, rng.gamma(0.8, 9.0, n), 0.0)
    tmean = 8 + 10 * season + rng.normal(0, 2.5, n)
    pet = np.clip(0.12 * (tmean + 5) * (1 + 0.3 * attrs["aridity"]), 0, None)
    srad = 180 + 120 * season - 40 * wet + rng.normal(0, 15, n)
    vp = 6.11 * np.exp(0.06 * tmean) * rng.uniform(0.6, 0.9, n)

    soil, ground, snow = 80.0, 40.0, 0.0
    cap = 120 + 180 * attrs["forest_frac"] + 100 * attrs["clay_frac"]
    k_fast, k_slow = 0.15 + 0.4 * attrs["slope"], 0.012
    q = np.empty(n)
    for i in range(n):
        p = precip[i]
        if tmean[i] < 0:
            snow += p
            p = 0.0
        else:
            melt = min(snow, 2.5 * tmean[i])
            snow -= melt
            p += melt
        soil = max(soil + p - pet[i] * min(1.0, soil / (0.6 * cap)), 0.0)
        excess = max(soil - cap, 0.0)
        soil -= excess
        perc = 0.02 * soil
        soil -= perc
        ground += perc
        base = k_slow * ground
        ground -= base
        q[i] = k_fast * excess + base
    q *= np.exp(rng.normal(0, 0.05, n))
    return pd.DataFrame({"precip": precip, "tmean": tmean, "pet": pet, "srad": srad, "vp": vp,
                         "qobs": q}, index=dates)


def build_region(n_basins, years, seed):
    rng = np.random.default_rng(seed)
    dates = pd.date_range("1995-10-01", periods=365 * years, freq="D")
    frames, attrs = {}, {}
    for b in range(n_basins):
        a = {"area_km2": rng.lognormal(5, 1), "slope": rng.uniform(0, 1), "forest_frac": rng.uniform(0, 1),
             "clay_frac": rng.uniform(0.05, 0.5), "aridity": rng.uniform(0.3, 1.5)}
        gauge = f"G{b:03d}"
        attrs[gauge] = a
        frames[gauge] = simulate_catchment(rng, dates, a)
    attrs = pd.DataFrame(attrs).T[STATICS]
    attrs = (attrs - attrs.mean()) / attrs.std()
    return frames, attrs


class BasinWindows(Dataset):
    """Every (basin, end day) pair is one sample."""

    def __init__(self, frames, attrs, seq_len):
        self.seq_len = seq_len
        allf = pd.concat(frames.values())
        mean, std = allf[FORCINGS].mean(), allf[FORCINGS].std()
        self.x, self.q, self.s, self.index = [], [], [], []
        for b, (gauge, df) in enumerate(frames.items()):
            self.x.append(((df[FORCINGS] - mean) / std).to_numpy(copy=True))
            self.q.append(np.log1p(df["qobs"]).to_numpy(copy=True))
            self.s.append(attrs.loc[gauge].to_numpy(copy=True))
            self.index += [(b, t) for t in range(seq_len, len(df))]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        b, t = self.index[i]
        return (torch.from_numpy(self.x[b][t - self.seq_len:t]),
                torch.from_numpy(self.s[b]),
                torch.as_tensor(self.q[b][t - 1]))


class RegionalLSTM(nn.Module):
    def __init__(self, n_dyn, n_stat, hidden, dropout):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(n_stat, 16), nn.Tanh())
        self.lstm = nn.LSTM(n_dyn + 16, hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.lstm.bias_hh_l0[hidden:2 * hidden] = 3.0

    def forward(self, dyn, stat):
        s = self.embed(stat).unsqueeze(1).expand(-1, dyn.shape[1], -1)
        out, _ = self.lstm(torch.cat([dyn, s], dim=-1))
        return self.head(self.dropout(out[:, -1])).squeeze(-1)


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--basins", type=int, default=20)
    p.add_argument("--years", type=int, default=10)
    p.add_argument("--seq-len", type=int, default=90)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--dropout", type=float, default=0.3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=1995)
    return p.parse_args()


def main():
    args = get_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    frames, attrs = build_region(args.basins, args.years, args.seed)
    data = BasinWindows(frames, attrs, args.seq_len)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    print(f"{len(frames)} gauges, {len(data)} samples, {len(loader)} batches")

    model = RegionalLSTM(len(FORCINGS), len(STATICS), args.hidden, args.dropout).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.MSELoss()

    began = time.time()
    for epoch in range(args.epochs):
        for g in optimizer.param_groups:
            g["lr"] = args.lr * (0.5 ** (epoch // 10))
        running = 0.0
        for i, (dyn, stat, q) in enumerate(loader, 1):
            pred = model(dyn, stat)
            loss = criterion(pred, q)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
            if i % args.log_every == 0:
                print(f"epoch {epoch + 1} {i}/{len(loader)}  mse(log q) {running / args.log_every:.4f}  "
                      f"({time.time() - began:.0f} s)", flush=True)
                running = 0.0


if __name__ == "__main__":
    main()
