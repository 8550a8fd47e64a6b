"""Neural network potential for small copper-like clusters, fitted to energies and forces.

Atoms are described by radial and angular symmetry functions (Behler and
Parrinello 2007), an atomic network gives atomic energies, and the forces
follow from the gradient with respect to the positions.
Reference energies come from a Morse potential with a three-body term.
"""
import math
import os
import tempfile

import h5py
import numpy as np
import torch
import torch.nn as nn

PATH = os.path.join(tempfile.gettempdir(), "cluster_forces", "clusters.h5")
CUTOFF = 6.0


def reference_energy(pos):
    """pos (B, N, 3) in Angstrom, energy in eV."""
    n = pos.shape[1]
    i, j = torch.triu_indices(n, n, 1)
    r = (pos[:, i] - pos[:, j]).norm(dim=-1)
    pair = 0.34 * ((1 - torch.exp(-1.36 * (r - 2.87))) ** 2 - 1)
    density = torch.zeros(pos.shape[:2], dtype=pos.dtype)
    w = torch.exp(-r / 1.2)
    density = density.index_add(1, i, w).index_add(1, j, w)
    return pair.sum(1) - 0.8 * density.sqrt().sum(1)


def make_data(n=3000, atoms=13):
    os.makedirs(os.path.dirname(PATH), exist_ok=True)
    rng = np.random.default_rng(5)
    phi = (1 + 5 ** 0.5) / 2
    corners = [(0, a, b * phi) for a in (-1, 1) for b in (-1, 1)]
    shape = [(0, 0, 0)] + corners + [(c[2], c[0], c[1]) for c in corners] + [(c[1], c[2], c[0]) for c in corners]
    base = np.array(shape) * (2.6 / 1.902)
    pos = base[None] * rng.uniform(0.93, 1.1, (n, 1, 1)) + rng.normal(0, 0.18, (n, atoms, 3))
    p = torch.tensor(pos, requires_grad=True)
    e = reference_energy(p)
    f = -torch.autograd.grad(e.sum(), p)[0]
    with h5py.File(PATH, "w") as h:
        h["positions"] = pos
        h["energy"] = e.detach().numpy()
        h["forces"] = f.numpy()


class SymmetryFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.radial = [(eta, rs) for eta in (0.5, 2.0) for rs in (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)]
        self.angular = [(eta, zeta, lam) for eta in (0.01, 0.1) for zeta in (1.0, 2.0, 4.0) for lam in (-1.0, 1.0)]
        self.size = len(self.radial) + len(self.angular)

    def cutoff(self, r):
        return 0.5 * (torch.cos(math.pi * r / CUTOFF) + 1) * (r < CUTOFF)

    def forward(self, pos):
        """pos (N, 3) -> (N, size)"""
        n = len(pos)
        neighbours = ~torch.eye(n, dtype=torch.bool)
        d = pos[None, :, :] - pos[:, None, :]
        d = d[neighbours].view(n, n - 1, 3)
        r = d.norm(dim=-1)
        fc = self.cutoff(r)
        out = []
        for eta, rs in self.radial:
            out.append((torch.exp(-eta * (r - rs) ** 2) * fc).sum(1))
        j, k = torch.triu_indices(n - 1, n - 1, 1)
        cos = (d[:, j] * d[:, k]).sum(-1) / (r[:, j] * r[:, k])
        rjk = (d[:, j] - d[:, k]).norm(dim=-1)
        weight = fc[:, j] * fc[:, k] * self.cutoff(rjk)
        r2 = r[:, j] ** 2 + r[:, k] ** 2 + rjk ** 2
        for eta, zeta, lam in self.angular:
            g = 2 ** (1 - zeta) * (1 + lam * cos) ** zeta * torch.exp(-eta * r2) * weight
            out.append(g.sum(1))
        return torch.stack(out, dim=1)


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.descriptor = SymmetryFunctions()
        n = self.descriptor.size
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("std", torch.ones(n))
        self.atomic = nn.Sequential(nn.Linear(n, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, pos):
        """Energy of one cluster."""
        g = (self.descriptor(pos) - self.mean) / self.std
        return (self.atomic(g) + self.offset).sum()


def main():
    if not os.path.exists(PATH):
        make_data()
    torch.manual_seed(1)
    with h5py.File(PATH) as h:
        positions = torch.tensor(h["positions"][:], dtype=torch.float32)
        energies = torch.tensor(h["energy"][:], dtype=torch.float32)
        forces = torch.tensor(h["forces"][:], dtype=torch.float32)
    train = torch.arange(len(positions))[:2700]

    model = Potential()
    with torch.no_grad():
        g = torch.cat([model.descriptor(positions[i]) for i in range(100)])
        model.mean.copy_(g.mean(0))
        model.std.copy_(g.std(0) + 1e-3)
        model.offset.copy_(energies[train].mean() / positions.shape[1])

    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    batch_size, force_weight = 8, 10.0
    for epoch in range(60):
        order = train[torch.randperm(len(train))]
        for step in range(len(order) // batch_size):
            index = order[step * batch_size:(step + 1) * batch_size]
            pos = positions[index].requires_grad_(True)
            energy = torch.stack([model(p) for p in pos])
            predicted = -torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]
            loss_e = ((energy - energies[index]) ** 2).mean() / positions.shape[1]
            loss_f = ((predicted - forces[index]) ** 2).mean()
            loss = loss_e + force_weight * loss_f
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}: energy rmse {loss_e.item() ** 0.5:.4f} "
                      f"force rmse {loss_f.item() ** 0.5:.4f} eV/A", flush=True)
        scheduler.step()


if __name__ == "__main__":
    main()
