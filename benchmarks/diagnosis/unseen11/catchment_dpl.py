"""Differentiable rainfall-runoff model.

A network reads the weather and the static attributes of a catchment and gives
daily parameters of a two-bucket model (soil and groundwater, with a degree-day
snow store).  Network and buckets are trained end to end on observed discharge.
"""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)

DATA = os.path.join(tempfile.gettempdir(), "catchment_dpl")
N_CATCH, N_DAYS = 300, 2200
WINDOW = 144          # days simulated per sample
SPINUP = 30           # days at the beginning that do not count
BATCH = 640
STEPS = 900
N_ATTR = 6
N_MUL = 4             # parallel buckets per catchment, averaged
PARAM_LO = torch.tensor([0.5, 50.0, 0.05, 0.01, 0.5, -1.5, 0.2, 0.0])
PARAM_HI = torch.tensor([6.0, 400.0, 0.6, 0.15, 4.0, 1.5, 1.2, 2.0])
N_PARAM = len(PARAM_LO)


def bucket_step(p, rain, temp, pet, snow, soil, gw):
    """One day. p: (batch, 8, mul) physical parameters; states: (batch, mul) mm."""
    ddf, cap, kq, kg, beta, t0, ke, perc = p.unbind(1)
    cold = torch.sigmoid(2.0 * (t0 - temp))
    snow = snow + rain * cold
    melt = torch.minimum(snow, ddf * torch.relu(temp - t0))
    snow = snow - melt
    water = rain * (1 - cold) + melt
    wet = (soil / cap).clamp(1e-3, 1.0)
    fast = water * wet ** beta
    soil = soil + water - fast
    soil = torch.relu(soil - ke * pet * wet)
    drain = torch.minimum(soil, perc * wet)
    soil, gw = soil - drain, gw + drain
    base = kg * gw
    return kq * fast + base, snow, soil, gw - base


def simulate(params, rain, temp, pet):
    """params: (batch, days, 8, mul); forcing: (batch, days) -> runoff (batch, days)."""
    size = (rain.shape[0], params.shape[-1])
    snow, soil, gw = rain.new_zeros(size), rain.new_full(size, 80.0), rain.new_full(size, 20.0)
    rain, temp, pet = rain[..., None], temp[..., None], pet[..., None]
    flow = []
    for t in range(rain.shape[1]):
        q, snow, soil, gw = bucket_step(
            params[:, t], rain[:, t], temp[:, t], pet[:, t], snow, soil, gw)
        flow.append(q.mean(1))
    return torch.stack(flow, 1)


def synthetic_camels():
    """Weather and discharge of invented catchments with known parameters."""
    path = os.path.join(DATA, "camels.npz")
    if os.path.exists(path):
        z = np.load(path)
        return [torch.from_numpy(z[k]) for k in ("rain", "temp", "pet", "attr", "obs")]
    os.makedirs(DATA, exist_ok=True)
    rng = np.random.default_rng(42)
    day = np.arange(N_DAYS)
    season = np.sin(2 * np.pi * (day - 110) / 365.25)
    attr = rng.normal(size=(N_CATCH, N_ATTR)).astype(np.float32)
    temp = 8 + 2 * attr[:, :1] + 10 * season + rng.normal(0, 3, (N_CATCH, N_DAYS))
    wet = rng.random((N_CATCH, N_DAYS)) < 0.35
    rain = wet * rng.gamma(0.8, 7.0, (N_CATCH, N_DAYS)) * np.exp(0.2 * attr[:, 1:2])
    pet = np.clip(1.5 + 1.3 * season + 0.05 * temp, 0.1, None)
    f32 = lambda a: torch.from_numpy(np.broadcast_to(a, (N_CATCH, N_DAYS)).astype(np.float32))
    rain, temp, pet = f32(rain), f32(temp), f32(pet)
    mix = torch.from_numpy(rng.normal(0, 0.5, (N_ATTR, N_PARAM)).astype(np.float32))
    attr = torch.from_numpy(attr)
    truth = PARAM_LO + (PARAM_HI - PARAM_LO) * torch.sigmoid(attr @ mix)
    with torch.no_grad():
        obs = simulate(truth[:, None, :, None].expand(-1, N_DAYS, -1, 1), rain, temp, pet)
    obs = obs * torch.exp(0.05 * torch.randn_like(obs))
    np.savez(path, rain=rain, temp=temp, pet=pet, attr=attr, obs=obs)
    return rain, temp, pet, attr, obs


class ParameterNet(nn.Module):
    """Per-day parameters: static part from the attributes, dynamic part from a
    causal convolution over the weather."""

    def __init__(self, hidden=16):
        super().__init__()
        self.static = nn.Sequential(nn.Linear(N_ATTR, 32), nn.Tanh(), nn.Linear(32, N_PARAM * N_MUL))
        self.conv = nn.Conv1d(3, hidden, 7)
        self.out = nn.Linear(hidden, N_PARAM * N_MUL)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, forcing, attr):
        x = nn.functional.pad(forcing, (6, 0))
        dyn = self.out(torch.tanh(self.conv(x)).transpose(1, 2))
        raw = self.static(attr)[:, None] + 0.3 * dyn
        unit = torch.sigmoid(raw).unflatten(-1, (N_PARAM, N_MUL))
        return PARAM_LO[:, None] + (PARAM_HI - PARAM_LO)[:, None] * unit


def nse_loss(sim, obs, var):
    err = (sim[:, SPINUP:] - obs[:, SPINUP:]).square().mean(1)
    return (err / (var + 0.1)).mean()


def main():
    rain, temp, pet, attr, obs = synthetic_camels()
    var = obs.var(1)
    net = ParameterNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(1)
    span = torch.arange(WINDOW)
    tic, losses = time.time(), []
    for step in range(1, STEPS + 1):
        c = torch.randint(N_CATCH, (BATCH,), generator=gen)
        s = torch.randint(N_DAYS - WINDOW, (BATCH, 1), generator=gen)
        days = s + span
        r, tt, e, q = (a[c[:, None], days] for a in (rain, temp, pet, obs))
        forcing = torch.stack([r / 10, tt / 10, e], 1)
        params = net(forcing, attr[c])
        sim = simulate(params, r, tt, e)
        loss = nse_loss(sim, q, var[c])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print(f"{step:5d}  1-NSE {np.mean(losses[-20:]):.4f}  "
                  f"{(time.time() - tic) / 20:.2f} s/step", flush=True)
            tic = time.time()
    torch.save(net.state_dict(), os.path.join(DATA, "net.pt"))


if __name__ == "__main__":
    main()
