"""
Surrogate for steady diffusion  -div(a grad u) = f  on the unit square.

a(x) is a two-phase random field, u is obtained with a sparse direct solver,
and a small dilated residual CNN learns a -> u.  (chapter 3, figures 3.4-3.7)
"""
import pathlib
import tempfile
import time

import numpy as np
import scipy.ndimage as ndi
import scipy.sparse as sp
import scipy.sparse.linalg as spla
import torch
import torch.nn as nn

HERE = pathlib.Path(tempfile.gettempdir()) / "darcy_surrogate"
N = 32                 # grid points per side
NTRAIN, NTEST = 512, 64
BS = 8
WIDTH = 24

torch.set_default_dtype(torch.float64)


# --------------------------------------------------------------------------
# reference solver
# --------------------------------------------------------------------------
def solve(a):
    n = a.shape[0]
    h = 1.0 / (n + 1)
    ap = np.pad(a, 1, mode="edge")
    aw = 0.5 * (ap[1:-1, 1:-1] + ap[1:-1, :-2])
    ae = 0.5 * (ap[1:-1, 1:-1] + ap[1:-1, 2:])
    an = 0.5 * (ap[1:-1, 1:-1] + ap[:-2, 1:-1])
    as_ = 0.5 * (ap[1:-1, 1:-1] + ap[2:, 1:-1])
    main = (aw + ae + an + as_).ravel()
    east = -ae.copy()
    east[:, -1] = 0
    east = east.ravel()[:-1]
    south = -as_.ravel()[:-n]
    A = sp.diags([south, east, main, east, south], [-n, -1, 0, 1, n], format="csc") / h ** 2
    return spla.spsolve(A, np.ones(n * n)).reshape(n, n)


def fields(count, rng):
    for _ in range(count):
        g = ndi.gaussian_filter(rng.standard_normal((N, N)), 3.0, mode="wrap")
        yield np.where(g > 0, 12.0, 3.0)


def dataset():
    f = HERE / "darcy.npz"
    if not f.exists():
        HERE.mkdir(exist_ok=True)
        rng = np.random.default_rng(5)
        a = np.stack(list(fields(NTRAIN + NTEST, rng)))
        u = np.stack([solve(k) for k in a])
        np.savez(HERE / "tmp.npz", a=a, u=u)
        (HERE / "tmp.npz").rename(f)
    z = np.load(f)
    return z["a"], z["u"]


class Normaliser:
    def __init__(self, x):
        self.mu, self.sd = x.mean(), x.std()

    def enc(self, x):
        return (x - self.mu) / self.sd

    def dec(self, x):
        return x * self.sd + self.mu


# --------------------------------------------------------------------------
# network
# --------------------------------------------------------------------------
class DilRes(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.seq = nn.ModuleList([nn.Conv2d(c, c, 3, padding=d, dilation=d) for d in (1, 2, 4, 8, 4, 2, 1)])

    def forward(self, x):
        y = x
        for conv in self.seq:
            y = torch.relu(conv(y))
        return x + y


class Surrogate(nn.Module):
    def __init__(self, c=WIDTH, blocks=2):
        super().__init__()
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.blocks = nn.ModuleList(DilRes(c) for _ in range(blocks))
        self.out = nn.Conv2d(c, 1, 3, padding=1)
        s = torch.linspace(0, 1, N)
        gy, gx = torch.meshgrid(s, s, indexing="ij")
        self.register_buffer("grid", torch.stack([gy, gx])[None])

    def forward(self, a):
        h = torch.cat([a[:, None], self.grid.expand(len(a), -1, -1, -1)], 1)
        h = self.inp(h)
        for b in self.blocks:
            h = b(h)
        return self.out(h)[:, 0]


def rel_l2(p, q):
    return ((p - q).flatten(1).norm(dim=1) / q.flatten(1).norm(dim=1)).mean()


def h1_term(p, q):
    """finite-difference gradient mismatch, weighted 0.1 in the thesis"""
    e = p - q
    return (e[:, 1:] - e[:, :-1]).square().mean() + (e[:, :, 1:] - e[:, :, :-1]).square().mean()


def main():
    torch.manual_seed(5)
    a, u = dataset()
    na, nu = Normaliser(a[:NTRAIN]), Normaliser(u[:NTRAIN])
    A = torch.as_tensor(na.enc(a)).to(torch.get_default_dtype())
    U = torch.as_tensor(nu.enc(u)).to(torch.get_default_dtype())
    net = Surrogate()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    sch = torch.optim.lr_scheduler.StepLR(opt, 40, 0.5)
    k, t0 = 0, time.time()
    for ep in range(200):
        for idx in torch.randperm(NTRAIN).split(BS):
            x, y = A[idx], U[idx]
            if torch.rand(()) < 0.5:                    # the problem is symmetric
                x, y = x.transpose(1, 2), y.transpose(1, 2)
            p = net(x)
            loss = rel_l2(p, y) + 0.1 * h1_term(p, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            k += 1
            assert torch.isfinite(loss), "diverged"
            if k % 16 == 0:
                print(f"{ep:3d} {k:5d}  loss {loss.item():.5f}   {k * BS / (time.time() - t0):.1f} fields/s", flush=True)
        sch.step()
        if ep % 10 == 9:
            with torch.no_grad():
                err = torch.stack([rel_l2(nu.dec(net(x)), nu.dec(y))
                                   for x, y in zip(A[NTRAIN:].split(16), U[NTRAIN:].split(16))]).mean()
            print(f"--- epoch {ep}: test rel. L2 {err.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
