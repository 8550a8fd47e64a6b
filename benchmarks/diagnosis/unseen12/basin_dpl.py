"""
Differentiable parameter learning (dPL) for a lumped rainfall-runoff model.

An LSTM reads daily forcings plus static catchment attributes and emits the
parameters of a two-store bucket model (snow + soil) for every day.  The bucket
model is integrated with an explicit daily step and everything is trained end
to end on discharge with a (1 - NSE)-type loss.

    python basin_dpl.py --rho 100 --batch-basins 48
"""
import argparse
import logging
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn

log = logging.getLogger("basin_dpl")

PARAM_RANGES = {
    "tt": (-2.0, 2.0),        # snow/rain threshold [degC]
    "ddf": (1.0, 8.0),        # degree-day factor [mm/degC/d]
    "fc": (60.0, 400.0),      # field capacity [mm]
    "beta": (1.0, 5.0),       # soil non-linearity
    "k1": (0.02, 0.5),        # fast reservoir [1/d]
    "k2": (0.001, 0.05),      # slow reservoir [1/d]
    "perc": (0.0, 4.0),       # percolation [mm/d]
    "lp": (0.3, 1.0),         # fraction of fc above which ET is potential
}


# --------------------------------------------------------------------- data
def synth_catchments(path, n_basins=160, n_days=1460, seed=11):
    """A poor man's CAMELS: seasonal forcing and a noisy reference discharge."""
    rng = np.random.default_rng(seed)
    day = np.arange(n_days)
    season = np.sin(2 * np.pi * (day - 100) / 365.25)[:, None]
    lat = rng.uniform(0, 1, n_basins)
    temp = 9 - 8 * lat + (8 + 5 * lat) * season + rng.normal(0, 2.5, (n_days, n_basins))
    wet = rng.random((n_days, n_basins)) < (0.25 + 0.2 * rng.random(n_basins))
    prcp = wet * rng.gamma(0.8, 9.0, (n_days, n_basins))
    pet = np.clip(0.12 * (temp + 5), 0, None)
    attrs = np.stack([lat, rng.random(n_basins), rng.random(n_basins),
                      rng.normal(0, 1, n_basins)], axis=1)

    k = 0.05 + 0.25 * attrs[:, 1]
    snow = np.zeros(n_basins)
    store = np.full(n_basins, 40.0)
    q = np.zeros((n_days, n_basins))
    for t in range(n_days):
        cold = temp[t] < 0
        snow += np.where(cold, prcp[t], 0)
        melt = np.minimum(snow, np.clip(temp[t], 0, None) * 3.0)
        snow -= melt
        store += np.where(cold, 0, prcp[t]) + melt
        store = np.clip(store - 0.7 * pet[t], 0, None)
        q[t] = k * store * (0.5 + 0.5 * attrs[:, 2])
        store -= q[t]
    q *= np.exp(rng.normal(0, 0.1, q.shape))
    forcing = np.stack([prcp, temp, pet], axis=-1)
    np.savez(path, forcing=forcing.astype("f4"), attrs=attrs.astype("f4"), q=q.astype("f4"))


class CatchmentSet:
    """Keeps all basins in memory and draws random (basin, window) batches."""

    def __init__(self, path, rho, warmup, batch, seed=0):
        z = np.load(path)
        self.forcing = torch.from_numpy(z["forcing"])
        self.attrs = torch.from_numpy(z["attrs"])
        self.q = torch.from_numpy(z["q"])
        self.mu = self.forcing.mean((0, 1))
        self.sd = self.forcing.std((0, 1))
        self.q_var = self.q.var(0)
        self.rho, self.warmup, self.batch = rho, warmup, batch
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self):
        n_days, n_basins = self.q.shape
        b = torch.randperm(n_basins, generator=self.gen)[: self.batch]
        t0 = int(torch.randint(0, n_days - self.rho, (1,), generator=self.gen))
        f = self.forcing[t0:t0 + self.rho, b]
        x = (f - self.mu) / self.sd
        x = torch.cat([x, self.attrs[b].expand(self.rho, -1, -1)], dim=-1)
        return x, f, self.q[t0:t0 + self.rho, b], self.q_var[b]


# -------------------------------------------------------------------- model
class BucketModel(nn.Module):
    """HBV-like water balance.  `n_mul` parallel components per basin."""

    def __init__(self, n_mul):
        super().__init__()
        self.n_mul = n_mul
        lo, hi = zip(*PARAM_RANGES.values())
        self.register_buffer("lo", torch.tensor(lo))
        self.register_buffer("span", torch.tensor(hi) - torch.tensor(lo))

    def forward(self, forcing, raw):
        n_t, n_b, _ = forcing.shape
        raw = raw.view(n_t, n_b, self.n_mul, len(PARAM_RANGES))
        par = self.lo + self.span * torch.sigmoid(raw)
        snow = forcing.new_zeros(n_b, self.n_mul)
        soil = forcing.new_full((n_b, self.n_mul), 80.0)
        fast = forcing.new_full((n_b, self.n_mul), 2.0)
        slow = forcing.new_full((n_b, self.n_mul), 10.0)
        runoff = []
        for t in range(n_t):
            tt, ddf, fc, beta, k1, k2, perc, lp = (
                par[t, :, :, i] for i in range(len(PARAM_RANGES)))
            p, temp, pet = forcing[t].unsqueeze(1).unbind(-1)
            frac = torch.sigmoid(2.0 * (temp - tt))
            snow = snow + p * (1 - frac)
            melt = torch.minimum(snow, ddf * torch.relu(temp - tt))
            snow = snow - melt
            inflow = p * frac + melt
            wet = (soil / fc).clamp(1e-3, 1.0)
            recharge = inflow * wet.pow(beta)
            soil = soil + inflow - recharge
            soil = (soil - pet * (soil / (lp * fc)).clamp(0.0, 1.0)).clamp_min(1e-3)
            fast = fast + recharge
            down = torch.minimum(fast, perc)
            fast = fast - down
            slow = slow + down
            q1, q2 = k1 * fast, k2 * slow
            fast, slow = fast - q1, slow - q2
            runoff.append((q1 + q2).mean(-1))
        return torch.stack(runoff)


class DPL(nn.Module):
    def __init__(self, n_in, hidden, n_mul):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.lstm = nn.LSTM(hidden, hidden)
        self.head = nn.Linear(hidden, n_mul * len(PARAM_RANGES))
        self.bucket = BucketModel(n_mul)

    def forward(self, x, forcing):
        h, _ = self.lstm(self.embed(x))
        return self.bucket(forcing, self.head(h))


def nse_loss(sim, obs, var):
    return (((sim - obs) ** 2).mean(0) / (var + 0.1)).mean()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    ap.add_argument("--rho", type=int, default=100, help="window length in days")
    ap.add_argument("--warmup", type=int, default=25)
    ap.add_argument("--batch-basins", type=int, default=48)
    ap.add_argument("--n-mul", type=int, default=16)
    ap.add_argument("--hidden", type=int, default=48)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--clip", type=float, default=1.0)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    root = os.path.join(tempfile.gettempdir(), "basin_dpl")
    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, "catchments.npz")
    if not os.path.exists(path):
        synth_catchments(path)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = CatchmentSet(path, args.rho, args.warmup, args.batch_basins)
    model = DPL(3 + data.attrs.shape[1], args.hidden, args.n_mul)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    log.info("%d parameters", sum(p.numel() for p in model.parameters()))

    t0, running = time.time(), 0.0
    for step in range(1, args.steps + 1):
        x, forcing, obs, var = data.draw()
        sim = model(x, forcing)
        loss = nse_loss(sim[args.warmup:], obs[args.warmup:], var)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        opt.step()
        running += loss.item()
        if step % 20 == 0:
            mean = running / 20
            running = 0.0
            if not math.isfinite(mean):
                raise RuntimeError("loss diverged")
            log.info("step %4d  1-NSE %.3f  (%.2f it/s)", step, mean, step / (time.time() - t0))


if __name__ == "__main__":
    main()
