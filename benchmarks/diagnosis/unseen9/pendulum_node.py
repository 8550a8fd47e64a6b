"""Neural ODE for a driven double-well oscillator, partially observed.

Research prototype; fixed-step RK4, discretise-then-optimise.
"""
import os
import sys
import tempfile
import time
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

OUT = os.path.join(tempfile.gettempdir(), "pendulum_node")
T_OBS = 24
DT = 0.1

torch.manual_seed(42)
torch.autograd.set_detect_anomaly(True)


# --- ground truth ----------------------------------------------------------
def rhs(state, t, omega):
    x, v = state[:, 0], state[:, 1]
    return np.stack([v, x - x ** 3 - 0.15 * v + 0.35 * np.cos(omega * t)], 1)


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    s = rng.normal(0, 1, (n, 2))
    omega = rng.uniform(0.8, 1.6, n)
    fine = DT / 5
    traj = [s]
    for k in range((T_OBS - 1) * 5):
        t = k * fine
        k1 = rhs(s, t, omega)
        k2 = rhs(s + fine / 2 * k1, t + fine / 2, omega)
        k3 = rhs(s + fine / 2 * k2, t + fine / 2, omega)
        k4 = rhs(s + fine * k3, t + fine, omega)
        s = s + fine / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        if k % 5 == 4:
            traj.append(s)
    return np.stack(traj, 1).astype(np.float32), omega.astype(np.float32)


def get_data():
    f = os.path.join(OUT, "traj.npz")
    if not os.path.isfile(f):
        os.makedirs(OUT, exist_ok=True)
        x, w = simulate(30000, 1)
        np.savez(f, x=x, w=w)
    z = np.load(f)
    x = z["x"] + 0.02 * np.random.default_rng(9).standard_normal(z["x"].shape).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(z["w"])


# --- model -----------------------------------------------------------------
class Field(nn.Module):
    def __init__(self, latent, hidden):
        super().__init__()
        self.l1 = nn.Linear(latent + 3, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, latent)
        self.gate = nn.Parameter(torch.zeros(latent))
        self.nfe = 0

    def forward(self, t, z, omega):
        self.nfe += 1
        ph = omega * t
        inp = torch.cat([z, torch.cos(ph), torch.sin(ph), omega], dim=1)
        h = torch.tanh(self.l1(inp))
        h = torch.tanh(self.l2(h)) + h
        return self.l3(h) - torch.sigmoid(self.gate) * z


def rk4(f, t, z, dt, *args):
    a = f(t, z, *args)
    b = f(t + dt / 2, z + dt / 2 * a, *args)
    c = f(t + dt / 2, z + dt / 2 * b, *args)
    d = f(t + dt, z + dt * c, *args)
    return z + dt / 6 * (a + 2 * b + 2 * c + d)


class NODE(nn.Module):
    def __init__(self, latent=8, hidden=64, warm=4):
        super().__init__()
        self.warm = warm
        self.enc = nn.Sequential(nn.Linear(2 * warm, hidden), nn.ELU(), nn.Linear(hidden, latent))
        self.field = Field(latent, hidden)
        self.dec = nn.Linear(latent, 2)

    def forward(self, x, omega):
        z = self.enc(x[:, :self.warm].flatten(1))
        zs = [z]
        t = (self.warm - 1) * DT
        for _ in range(T_OBS - self.warm):
            z = rk4(self.field, t, z, DT, omega[:, None])
            t += DT
            zs.append(z)
        return self.dec(torch.stack(zs, 1))


def main():
    x, w = get_data()
    n_hold = 1000
    x_tr, w_tr, x_ho, w_ho = x[:-n_hold], w[:-n_hold], x[-n_hold:], w[-n_hold:]
    model = NODE()
    print(model, file=sys.stderr)
    opt = torch.optim.RAdam(model.parameters(), lr=2e-3)
    tb = SummaryWriter(os.path.join(OUT, "tb"))
    window = deque(maxlen=50)
    bs, it, t0 = 256, 0, time.time()
    for epoch in range(300):
        perm = torch.randperm(len(x_tr))
        for j in range(len(x_tr) // bs):
            sel = perm[j * bs:(j + 1) * bs]
            xb, wb = x_tr[sel], w_tr[sel]
            pred = model(xb, wb)
            target = xb[:, model.warm - 1:]
            loss = nn.functional.smooth_l1_loss(pred, target, beta=0.1)
            for p in model.parameters():
                p.grad = None
            loss.backward()
            gn = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            it += 1
            window.append(loss.item())
            tb.add_scalar("train/loss", window[-1], it)
            tb.add_scalar("train/grad_norm", gn.item(), it)
            if it % 20 == 0:
                print(f"ep {epoch} it {it} loss {np.mean(window):.5f} |g| {gn.item():.3f} nfe {model.field.nfe} "
                      f"{it * bs / (time.time() - t0):.0f} traj/s", flush=True)
        with torch.no_grad():
            mse = (model(x_ho, w_ho) - x_ho[:, model.warm - 1:]).square().mean().item()
        print(f"## epoch {epoch} held-out mse {mse:.5f}", flush=True)


if __name__ == "__main__":
    main()
