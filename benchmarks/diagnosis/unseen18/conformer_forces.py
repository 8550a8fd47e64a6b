"""Energies and forces of the conformations of one molecule with a SchNet-like network (MD17 setting)."""
import argparse
import copy
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DATA = os.path.join(tempfile.gettempdir(), "conformer_forces_data")


def make_data(folder, n_frames=6000, n_atoms=15, seed=2):
    """Langevin dynamics of a small branched chain with bonds, angles and soft repulsion."""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    z = rng.choice([6, 6, 6, 7, 8], n_atoms)
    parent = [0] + [max(0, i - int(rng.integers(1, 3))) for i in range(1, n_atoms)]
    bonds = torch.tensor([(parent[i], i) for i in range(1, n_atoms)])
    angles = torch.tensor([(parent[parent[i]], i) for i in range(1, n_atoms) if parent[i] != 0])
    pairs = torch.triu_indices(n_atoms, n_atoms, 1)
    soft = torch.from_numpy(0.5 + 0.1 * (z[pairs[0]] + z[pairs[1]] - 12))

    def energy(r):
        b = (r[:, bonds[:, 0]] - r[:, bonds[:, 1]]).norm(dim=2)
        a = (r[:, angles[:, 0]] - r[:, angles[:, 1]]).norm(dim=2)
        d = (r[:, pairs[0]] - r[:, pairs[1]]).norm(dim=2)
        return (60 * (b - 1.45) ** 2).sum(1) + (20 * (a - 2.45) ** 2).sum(1) + (soft * 8 * torch.exp(-1.5 * d)).sum(1)

    def energy_forces(r):
        r = r.detach().requires_grad_()
        e = energy(r)
        return e.detach(), -torch.autograd.grad(e.sum(), r)[0]

    n_walkers = 120
    start = np.zeros((n_atoms, 3))
    for i in range(1, n_atoms):
        step = rng.normal(size=3)
        start[i] = start[parent[i]] + 1.45 * step / np.linalg.norm(step)
    r = torch.from_numpy(start)[None].repeat(n_walkers, 1, 1)
    frames, energies, forces = [], [], []
    gen = torch.Generator().manual_seed(seed)
    for t in range(500 + 10 * (n_frames // n_walkers)):
        e, f = energy_forces(r)
        if t >= 500 and t % 10 == 0:
            frames.append(r.numpy().copy()), energies.append(e.numpy()), forces.append(f.numpy())
        move = 5e-4 * f.clamp(-200, 200)
        r = r + move + (2 * 5e-4 * 0.6) ** 0.5 * torch.randn(r.shape, generator=gen, dtype=r.dtype)
    tmp = os.path.join(folder, "tmp.npz")
    np.savez(tmp, z=z, R=np.concatenate(frames), E=np.concatenate(energies), F=np.concatenate(forces))
    os.rename(tmp, os.path.join(folder, "molecule.npz"))


def shifted_softplus(x):
    return F.softplus(x) - 0.6931472


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter1 = nn.Linear(n_rbf, dim)
        self.filter2 = nn.Linear(dim, dim)
        self.lin_in = nn.Linear(dim, dim, bias=False)
        self.out1 = nn.Linear(dim, dim)
        self.out2 = nn.Linear(dim, dim)

    def forward(self, x, rbf, cut, src, dst):
        w = self.filter2(shifted_softplus(self.filter1(rbf))) * cut
        messages = self.lin_in(x)[:, src] * w
        agg = torch.zeros_like(x).index_add(1, dst, messages)
        return x + self.out2(shifted_softplus(self.out1(agg)))


class SchNet(nn.Module):
    def __init__(self, z, dim, n_layers, n_rbf, cutoff):
        super().__init__()
        n = len(z)
        src, dst = torch.where(~torch.eye(n, dtype=torch.bool))
        self.register_buffer("z", z)
        self.register_buffer("src", src)
        self.register_buffer("dst", dst)
        self.register_buffer("centers", torch.linspace(0.5, cutoff, n_rbf))
        self.gamma = (n_rbf / cutoff) ** 2 / 2
        self.cutoff = cutoff
        self.embed = nn.Embedding(20, dim)
        self.layers = nn.ModuleList([Interaction(dim, n_rbf) for _ in range(n_layers)])
        self.readout = nn.Sequential(nn.Linear(dim, dim // 2), nn.Softplus(), nn.Linear(dim // 2, 1))

    def forward(self, r):
        d = (r[:, self.src] - r[:, self.dst]).norm(dim=2, keepdim=True)
        rbf = torch.exp(-self.gamma * (d - self.centers) ** 2)
        cut = 0.5 * (torch.cos(np.pi * d.clamp(max=self.cutoff) / self.cutoff) + 1)
        x = self.embed(self.z).expand(len(r), -1, -1)
        for layer in self.layers:
            x = layer(x, rbf, cut, self.src, self.dst)
        return self.readout(x).sum(dim=(1, 2))

    def energy_and_forces(self, r, create_graph):
        r = r.detach().requires_grad_()
        energy = self(r)
        forces = -torch.autograd.grad(energy.sum(), r, create_graph=create_graph)[0]
        return energy, forces


@torch.no_grad()
def update_ema(ema, model, decay):
    for p_ema, p in zip(ema.parameters(), model.parameters()):
        p_ema.lerp_(p, 1 - decay)


def evaluate(model, r, e, f, batch_size=100):
    e_err, f_err = 0.0, 0.0
    for rb, eb, fb in zip(r.split(batch_size), e.split(batch_size), f.split(batch_size)):
        pe, pf = model.energy_and_forces(rb, create_graph=False)
        e_err += (pe.detach() - eb).abs().sum().item()
        f_err += (pf - fb).abs().mean(dim=(1, 2)).sum().item()
    return e_err / len(r), f_err / len(r)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rbf", type=int, default=32)
    parser.add_argument("--cutoff", type=float, default=6.0)
    parser.add_argument("--rho", type=float, default=0.02, help="weight of the energy term")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    if not os.path.exists(os.path.join(DATA, "molecule.npz")):
        make_data(DATA)

    data = np.load(os.path.join(DATA, "molecule.npz"))
    z = torch.from_numpy(data["z"]).long()
    order = torch.randperm(len(data["R"]))
    r, e, f = (torch.from_numpy(data[k]).float()[order] for k in ("R", "E", "F"))
    e = e - e[:-600].mean()
    scale = f[:-600].std()
    e, f = e / scale, f / scale
    (train_r, test_r), (train_e, test_e), (train_f, test_f) = (x.split([len(x) - 600, 600]) for x in (r, e, f))

    model = SchNet(z, args.dim, args.layers, args.rbf, args.cutoff)
    ema = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    print("epoch     loss   energy MAE   force MAE")
    for epoch in range(args.epochs):
        total, n_batches = 0.0, 0
        for idx in torch.randperm(len(train_r)).split(args.batch_size):
            energy, forces = model.energy_and_forces(train_r[idx], create_graph=True)
            loss = args.rho * F.mse_loss(energy, train_e[idx]) + F.mse_loss(forces, train_f[idx])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            update_ema(ema, model, 0.999)
            total += loss.item()
            n_batches += 1
        scheduler.step()
        e_mae, f_mae = evaluate(ema, test_r, test_e, test_f)
        print("%5d  %7.4f  %11.4f  %10.4f" % (epoch, total / n_batches, e_mae * scale, f_mae * scale), flush=True)


if __name__ == "__main__":
    main()
