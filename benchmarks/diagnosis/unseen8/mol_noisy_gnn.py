"""
Energy regression on small organic molecules with continuous-filter message passing.

Positions are perturbed in every epoch ("noisy nodes" regularisation), so the
neighbour list of a molecule is never quite the same twice.
"""
import json
import math
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

WORKDIR = Path(tempfile.gettempdir()) / "mol_noisy_gnn"
ELEMENTS = ["H", "C", "N", "O", "F"]
RADII = [0.4, 0.75, 0.7, 0.65, 0.6]
CUTOFF = 3.6
N_RBF = 20
NOISE = 0.03
BATCH_SIZE = 48
HIDDEN = 48
LAYERS = 2


def make_molecules(n=3500, seed=0):
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), -1).reshape(-1, 3) * 1.25
    centre_dist = np.linalg.norm(grid - grid.mean(0), axis=1)
    mols = []
    for k in range(n):
        size = int(rng.integers(14, 27))
        score = centre_dist + rng.normal(0, 0.8, len(grid))
        pos = grid[np.argsort(score)[:size]] + rng.normal(0, 0.12, (size, 3))
        z = rng.choice(5, size, p=[0.45, 0.33, 0.09, 0.1, 0.03])
        d = np.linalg.norm(pos[:, None] - pos[None], axis=-1) + np.eye(size) * 50
        r0 = np.asarray(RADII)[z][:, None] + np.asarray(RADII)[z][None]
        morse = (1 - np.exp(-1.2 * (d - r0))) ** 2 - 1
        energy = float((morse * (1 + 0.1 * z[:, None]) * (d < 4)).sum() / 2 / size)
        mols.append({"id": f"mol{k:05d}", "z": z.tolist(), "pos": pos.round(4).tolist(), "energy": energy})
    return mols


def load_molecules():
    WORKDIR.mkdir(parents=True, exist_ok=True)
    path = WORKDIR / "molecules.jsonl"
    if not path.exists():
        with open(path, "w") as fh:
            for m in make_molecules():
                fh.write(json.dumps(m) + "\n")
    with open(path) as fh:
        return [json.loads(line) for line in fh]


def neighbours(pos, centres, gamma):
    """Directed edges (i -> j) within the cutoff and their radial basis expansion."""
    src, dst, rbf = [], [], []
    for i in range(len(pos)):
        for j in range(len(pos)):
            if i == j:
                continue
            d = math.dist(pos[i], pos[j])
            if d < CUTOFF:
                src.append(i)
                dst.append(j)
                envelope = 0.5 * (math.cos(math.pi * d / CUTOFF) + 1)
                rbf.append([envelope * math.exp(-gamma * (d - c) ** 2) for c in centres])
    return src, dst, rbf


class MoleculeStream:
    """Shuffles the molecules and yields batches merged into one big graph."""

    def __init__(self, mols, batch_size, seed):
        self.mols = mols
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)
        self.centres = np.linspace(0.4, CUTOFF, N_RBF).tolist()
        self.gamma = 1.0 / (self.centres[1] - self.centres[0]) ** 2
        energies = np.array([m["energy"] for m in mols])
        self.mean, self.std = energies.mean(), energies.std()

    def __len__(self):
        return len(self.mols) // self.batch_size

    def __iter__(self):
        order = self.rng.permutation(len(self.mols))
        for b in range(len(self)):
            chosen = order[b * self.batch_size:(b + 1) * self.batch_size]
            z, owner, src, dst, rbf, target = [], [], [], [], [], []
            offset = 0
            for g, k in enumerate(chosen):
                mol = self.mols[k]
                pos = np.asarray(mol["pos"])
                pos = pos + self.rng.normal(0, NOISE, pos.shape)
                s, d, f = neighbours(pos.tolist(), self.centres, self.gamma)
                src.append(np.asarray(s) + offset)
                dst.append(np.asarray(d) + offset)
                rbf.append(np.asarray(f, dtype=np.float32))
                z += mol["z"]
                owner += [g] * len(mol["z"])
                target.append((mol["energy"] - self.mean) / self.std)
                offset += len(mol["z"])
            yield {
                "z": torch.tensor(z),
                "owner": torch.tensor(owner),
                "src": torch.from_numpy(np.concatenate(src)),
                "dst": torch.from_numpy(np.concatenate(dst)),
                "rbf": torch.from_numpy(np.concatenate(rbf)),
                "y": torch.tensor(target, dtype=torch.float32),
            }


class Interaction(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(N_RBF, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.lin = nn.Linear(dim, dim, bias=False)
        self.update = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, src, dst, rbf):
        msg = self.lin(h).index_select(0, src) * self.filter(rbf)
        agg = torch.zeros_like(h).index_add_(0, dst, msg)
        return h + self.update(agg)


class FilterNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS), HIDDEN)
        self.blocks = nn.ModuleList(Interaction(HIDDEN) for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(HIDDEN, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, b):
        h = self.embed(b["z"])
        for blk in self.blocks:
            h = blk(h, b["src"], b["dst"], b["rbf"])
        per_atom = self.head(h).squeeze(-1)
        total = torch.zeros(len(b["y"])).index_add_(0, b["owner"], per_atom)
        count = torch.bincount(b["owner"], minlength=len(b["y"]))
        return total / count


def main():
    random.seed(1)
    torch.manual_seed(1)
    mols = load_molecules()
    print(f"{len(mols)} molecules, {sum(len(m['z']) for m in mols)} atoms")
    stream = MoleculeStream(mols, BATCH_SIZE, seed=2)
    model = FilterNet()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=8e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.7, patience=4)
    loss_fn = nn.HuberLoss(delta=1.0)
    for epoch in range(1, 301):
        start, running = time.perf_counter(), []
        for it, batch in enumerate(stream):
            prediction = model(batch)
            loss = loss_fn(prediction, batch["y"])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            running.append(loss.item())
            if it % 25 == 0:
                print(f"epoch {epoch:3d} [{it:3d}/{len(stream)}] loss={np.mean(running[-25:]):.5f} |g|={norm:.3f}", flush=True)
        averaged.update_parameters(model)
        plateau.step(float(np.mean(running)))
        if epoch % 10 == 0:
            torch.save({"model": averaged.state_dict(), "epoch": epoch}, WORKDIR / "swa.pt")
        print(f"epoch {epoch:3d} done in {time.perf_counter() - start:.1f}s, lr={optimiser.param_groups[0]['lr']:.1e}")


if __name__ == "__main__":
    main()
