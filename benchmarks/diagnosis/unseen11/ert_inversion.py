#!/usr/bin/env python3
"""
Electrical resistivity tomography of a dike: find the conductivity of the ground
from voltages between electrodes at its crest.

Forward problem: -div(sigma grad u) = I (finite volumes on a regular grid), solved
directly.  The solve is an autograd.Function whose backward uses the adjoint, so the
inversion is an ordinary PyTorch training loop over log(sigma).
"""
import argparse
import csv
import os
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
import torch
import torch.nn as nn

ROOT = os.path.join(tempfile.gettempdir(), "ert_inversion")


class Grid:
    """Cell-centred grid, x to the right, z downwards; grounded at bottom and sides."""

    def __init__(self, nx, nz):
        self.nx, self.nz, self.n = nx, nz, nx * nz
        idx = np.arange(self.n).reshape(nz, nx)
        self.left = np.concatenate([idx[:, :-1].ravel(), idx[:-1].ravel()])
        self.right = np.concatenate([idx[:, 1:].ravel(), idx[1:].ravel()])
        self.ground = np.unique(np.concatenate([idx[-1], idx[:, 0], idx[:, -1]]))
        # fixed sparsity pattern: csc.data = scatter @ [face conductances, ground conductances]
        faces, m = len(self.left), len(self.ground)
        f = np.arange(faces)
        rows = np.concatenate([self.left, self.right, self.left, self.right, self.ground])
        cols = np.concatenate([self.left, self.right, self.right, self.left, self.ground])
        src = np.concatenate([f, f, f, f, faces + np.arange(m)])
        sign = np.concatenate([np.ones(2 * faces), -np.ones(2 * faces), np.ones(m)])
        keys, slot = np.unique(cols * self.n + rows, return_inverse=True)
        self.scatter = sp.csr_matrix((sign, (slot, src)), shape=(len(keys), faces + m))
        indptr = np.searchsorted(keys // self.n, np.arange(self.n + 1))
        self.pattern = ((keys % self.n).astype(np.int32), indptr.astype(np.int32))

    def matrix(self, face, ground):
        data = self.scatter @ np.concatenate([face, ground])
        return sp.csc_matrix((data, *self.pattern), shape=(self.n, self.n))


class PotentialSolve(torch.autograd.Function):
    """u = K(face, ground)^-1 B for all current injections."""

    @staticmethod
    def forward(ctx, face, ground, grid, injections):
        k = grid.matrix(face.detach().numpy(), ground.detach().numpy())
        lu = spla.splu(k, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        u = np.ascontiguousarray(lu.solve(injections))
        ctx.lu, ctx.grid, ctx.u = lu, grid, u
        return torch.from_numpy(u)

    @staticmethod
    def backward(ctx, grad_u):
        g = ctx.grid
        lam = np.ascontiguousarray(ctx.lu.solve(grad_u.numpy()))  # K is symmetric
        u = ctx.u
        d_face = -np.einsum("ij,ij->i", lam[g.left] - lam[g.right], u[g.left] - u[g.right])
        d_ground = -(lam[g.ground] * u[g.ground]).sum(axis=1)
        return torch.from_numpy(d_face), torch.from_numpy(d_ground), None, None


class Subsurface(nn.Module):
    """log10(sigma) on a coarse mesh, interpolated to the solver's grid."""

    def __init__(self, grid, coarse):
        super().__init__()
        self.grid = grid
        self.log_sigma = nn.Parameter(torch.full((1, 1, *coarse), -2.0, dtype=torch.float64))
        self.register_buffer("left", torch.from_numpy(grid.left))
        self.register_buffer("right", torch.from_numpy(grid.right))
        self.register_buffer("ground", torch.from_numpy(grid.ground))

    def field(self):
        size = (self.grid.nz, self.grid.nx)
        return nn.functional.interpolate(self.log_sigma, size=size, mode="bilinear", align_corners=True)[0, 0]

    def conductances(self, log_sigma):
        s = torch.pow(10.0, log_sigma).reshape(-1)
        a, b = s[self.left], s[self.right]
        return 2 * a * b / (a + b), 2 * s[self.ground]

    def roughness(self):
        m = self.log_sigma[0, 0]
        return (m[1:] - m[:-1]).square().mean() + (m[:, 1:] - m[:, :-1]).square().mean()


def survey(grid, n_electrodes):
    """Electrode cells on the surface and unit injections between neighbours two apart."""
    cells = np.linspace(0.1 * grid.nx, 0.9 * grid.nx, n_electrodes).astype(int)
    b = np.zeros((grid.n, n_electrodes - 2))
    for k in range(n_electrodes - 2):
        b[cells[k], k], b[cells[k + 2], k] = 1.0, -1.0
    return cells, np.asfortranarray(b)


def measure(grid, cells, injections, path, noise, seed):
    """Voltages over a clay core and a leak; computed once."""
    if os.path.exists(path):
        return
    z, x = np.mgrid[0:1:grid.nz * 1j, 0:1:grid.nx * 1j]
    true = np.full(x.shape, -2.2)
    true[(np.abs(x - 0.45) < 0.08 + 0.05 * z) & (z < 0.7)] = -1.2
    true[((x - 0.68) / 0.1) ** 2 + ((z - 0.3) / 0.08) ** 2 < 1] = -0.8
    model = Subsurface(grid, (4, 4))
    with torch.no_grad():
        u = PotentialSolve.apply(*model.conductances(torch.from_numpy(true)), grid, injections)
    volts = np.diff(u.numpy()[cells], axis=0)
    rng = np.random.default_rng(seed)
    np.savez(path, volts=volts * (1 + noise * rng.standard_normal(volts.shape)), true=true)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--nx", type=int, default=240)
    ap.add_argument("--nz", type=int, default=100)
    ap.add_argument("--electrodes", type=int, default=18)
    ap.add_argument("--iterations", type=int, default=2500)
    ap.add_argument("--lr", type=float, default=0.03)
    ap.add_argument("--smooth", type=float, default=0.02)
    ap.add_argument("--noise", type=float, default=0.01)
    ap.add_argument("--seed", type=int, default=4)
    args = ap.parse_args()

    os.makedirs(ROOT, exist_ok=True)
    torch.manual_seed(args.seed)
    grid = Grid(args.nx, args.nz)
    cells, injections = survey(grid, args.electrodes)
    path = os.path.join(ROOT, f"survey_{args.nx}x{args.nz}_{args.electrodes}.npz")
    measure(grid, cells, injections, path, args.noise, args.seed)

    model = Subsurface(grid, (18, 40))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    electrodes = torch.from_numpy(cells)
    log = open(os.path.join(ROOT, "convergence.csv"), "w", newline="")
    writer = csv.writer(log)
    print(f"{grid.n} cells, {injections.shape[1]} injections", file=sys.stderr)

    t0 = time.time()
    for it in range(args.iterations):
        volts = torch.from_numpy(np.load(path)["volts"])
        u = PotentialSolve.apply(*model.conductances(model.field()), grid, injections)
        simulated = u[electrodes].diff(dim=0)
        misfit = ((simulated - volts) / (args.noise * volts.abs() + 0.05)).square().mean()
        loss = misfit + args.smooth * model.roughness()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        writer.writerow([it, loss.item(), misfit.item(), model.log_sigma.min().item(), model.log_sigma.max().item()])
        log.flush()
        if it % 25 == 0:
            np.save(os.path.join(ROOT, "current.npy"), model.field().detach().numpy())
            print(f"it {it:4d}  misfit {misfit.item():10.3f}  loss {loss.item():10.3f}  {time.time() - t0:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
