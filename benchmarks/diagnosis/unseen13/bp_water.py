#!/usr/bin/env python
"""
Behler-Parrinello network for water clusters, energies + forces.

Reference data here is a toy potential (Morse OH + LJ OO + Coulomb), to be
replaced with the DFT set once the cluster is back up.
"""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--n-water", type=int, default=14)
parser.add_argument("--n-conf", type=int, default=1200)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--hidden", type=int, default=30)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--force-weight", type=float, default=0.5)
args = parser.parse_args()

WORK = os.path.join(tempfile.gettempdir(), "bp_water")
os.makedirs(WORK, exist_ok=True)

SPECIES = ["O", "H", "H"] * args.n_water
N_ATOMS = len(SPECIES)
RC = 6.0
ETAS = [0.05, 0.4, 2.0]
SHIFTS = [0.0, 1.0, 2.0, 3.5]

isO = torch.tensor([s == "O" for s in SPECIES])


# ----------------------------------------------------------------------
# toy reference potential
# ----------------------------------------------------------------------
def pair_distances(pos):
    d = pos[:, :, None, :] - pos[:, None, :, :]
    d2 = (d ** 2).sum(-1) + torch.eye(N_ATOMS)
    return torch.sqrt(d2)


def reference_energy(pos):
    r = pair_distances(pos)
    off = 1 - torch.eye(N_ATOMS)
    q = torch.where(isO, -0.8, 0.4)
    mol = torch.arange(N_ATOMS) // 3
    same = (mol[:, None] == mol[None, :]).float() * off
    oh = same * (isO[:, None] ^ isO[None, :]).float()
    morse = 2.0 * (1 - torch.exp(-1.5 * (r - 0.96))) ** 2
    oo = (isO[:, None] & isO[None, :]).float() * off
    lj = 0.03 * ((3.1 / r) ** 12 - (3.1 / r) ** 6)
    coul = q[:, None] * q[None, :] / r * (1 - same) * off
    return 0.5 * (oh * morse + oo * lj + coul).sum((1, 2))


def build_dataset():
    f = os.path.join(WORK, "w%d_%d.npz" % (args.n_water, args.n_conf))
    if not os.path.exists(f):
        rng = np.random.default_rng(7)
        water = np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
        grid = np.array([[i, j, k] for i in range(3) for j in range(3) for k in range(3)]) * 3.0
        confs = []
        for _ in range(args.n_conf):
            cells = grid[rng.permutation(27)[: args.n_water]]
            atoms = []
            for c in cells:
                Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
                atoms.append(water @ Q + c + rng.normal(0, 0.15, 3))
            confs.append(np.concatenate(atoms) + rng.normal(0, 0.04, (N_ATOMS, 3)))
        R = torch.tensor(np.array(confs), dtype=torch.float32, requires_grad=True)
        E = reference_energy(R)
        Fr = -torch.autograd.grad(E.sum(), R)[0]
        np.savez(f, R=R.detach().numpy(), E=E.detach().numpy(), F=Fr.numpy())
    d = np.load(f)
    return [torch.from_numpy(d[k]) for k in "REF"]


# ----------------------------------------------------------------------
# descriptors and network
# ----------------------------------------------------------------------
class SymmetryFunctions(nn.Module):
    """G2 only, separate channels for O and H neighbours."""

    def __init__(self):
        super().__init__()
        par = torch.tensor([(eta, rs) for eta in ETAS for rs in SHIFTS])
        self.register_buffer("eta", par[:, 0])
        self.register_buffer("rs", par[:, 1])

    def forward(self, pos):
        r = pair_distances(pos)
        fc = 0.5 * (torch.cos(np.pi * r / RC) + 1) * (r < RC).float()
        fc = fc * (1 - torch.eye(N_ATOMS))
        nb = torch.stack([isO, ~isO], -1).float()                  # j, species
        g = torch.exp(-self.eta * (r.unsqueeze(-1) - self.rs) ** 2) * fc.unsqueeze(-1)
        return torch.einsum("bijk,js->biks", g, nb).flatten(2)


def atomic_net(n_in, n_hidden):
    return nn.Sequential(
        nn.Linear(n_in, n_hidden), nn.Tanh(),
        nn.Linear(n_hidden, n_hidden), nn.Tanh(),
        nn.Linear(n_hidden, 1),
    )


class BPNN(nn.Module):
    def __init__(self):
        super().__init__()
        n_g = 2 * len(ETAS) * len(SHIFTS)
        self.sf = SymmetryFunctions()
        self.norm = nn.LayerNorm(n_g, elementwise_affine=False)
        self.nets = nn.ModuleDict({"O": atomic_net(n_g, args.hidden),
                                   "H": atomic_net(n_g, args.hidden)})

    def forward(self, pos):
        G = self.norm(self.sf(pos))
        energy = 0.0
        for i, el in enumerate(SPECIES):
            energy = energy + self.nets[el](G[:, i])
        return energy.squeeze(-1)


def main():
    torch.manual_seed(0)
    R, E, Fref = build_dataset()
    E = (E - E.mean()) / E.std()
    scale = Fref.std()
    Fref = Fref / scale
    n_val = 100
    model = BPNN()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.StepLR(opt, 20, 0.5)
    print(model)

    for ep in range(1, args.epochs + 1):
        t = time.time()
        perm = n_val + torch.randperm(len(R) - n_val)
        sumE = sumF = 0.0
        nb = 0
        for b in perm.split(args.batch_size):
            pos = R[b].clone().requires_grad_(True)
            e = model(pos)
            f = -torch.autograd.grad(e.sum(), pos, create_graph=True)[0]
            lossE = ((e - E[b]) ** 2).mean()
            lossF = ((f - Fref[b]) ** 2).mean()
            loss = lossE + args.force_weight * lossF
            opt.zero_grad()
            loss.backward()
            opt.step()
            sumE += lossE.item()
            sumF += lossF.item()
            nb += 1
        sched.step()
        with torch.no_grad():
            ev = model(R[:n_val])
            rmse = ((ev - E[:n_val]) ** 2).mean().sqrt().item()
        print("epoch %3d  E %.4f  F %.4f  val rmse(E) %.4f   %.1fs"
              % (ep, sumE / nb, sumF / nb, rmse, time.time() - t), flush=True)
        torch.save(model.state_dict(), os.path.join(WORK, "bpnn.pt"))


if __name__ == "__main__":
    main()
