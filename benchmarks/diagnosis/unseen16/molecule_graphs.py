"""Energies of small molecules from their geometry: message passing on distance graphs, with EMA weights."""
import tempfile
import time
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.spatial import cKDTree
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(tempfile.gettempdir()) / "molecule_graphs_data"
ELEMENTS = [1, 6, 7, 8, 9]
REGISTRY = {}


def register(name):
    def wrap(obj):
        REGISTRY[name] = obj
        return obj
    return wrap


@dataclass
class Config:
    molecules: int = 6000
    cutoff: float = 4.0
    model: str = "cfconv"
    dim: int = 96
    rbf: int = 32
    layers: int = 3
    batch_size: int = 32
    lr: float = 1e-3
    ema: float = 0.999
    epochs: int = 80
    log_every: int = 25
    seed: int = 9


def prepare(cfg):
    path = FOLDER / "molecules.npz"
    if path.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    depth = rng.uniform(0.2, 1.2, (10, 10))
    zs, xs, counts, energies = [], [], [], []
    for _ in range(cfg.molecules):
        n = int(rng.integers(9, 26))
        x = np.zeros((n, 3))
        for i in range(1, n):
            for _ in range(20):
                step = rng.normal(size=3)
                x[i] = x[rng.integers(i)] + 1.35 * step / np.linalg.norm(step)
                if np.linalg.norm(x[:i] - x[i], axis=1).min() > 1.0:
                    break
        z = rng.choice(ELEMENTS, n, p=[0.45, 0.35, 0.08, 0.09, 0.03])
        d = np.linalg.norm(x[:, None] - x[None], axis=-1)
        i, j = np.triu_indices(n, 1)
        r = d[i, j].clip(0.9)
        pair = (depth[z[i], z[j]] + depth[z[j], z[i]]) * ((1.3 / r) ** 8 - 2 * (1.3 / r) ** 4)
        zs.append(z); xs.append(x); counts.append(n)
        energies.append(pair.sum() - 0.5 * z.sum())
    np.savez(path, z=np.concatenate(zs), x=np.concatenate(xs).astype(np.float32), n=counts, energy=energies)
    return path


class Molecules(Dataset):
    """Graphs are built once, when the set is loaded; every pair within the cutoff is kept once."""

    def __init__(self, path, cfg):
        raw = np.load(path)
        ends = np.cumsum(raw["n"])
        all_z, all_x = torch.from_numpy(raw["z"]), torch.from_numpy(raw["x"])
        energy = torch.from_numpy(raw["energy"]).float()
        self.mean, self.std = energy.mean(), energy.std()
        self.graphs = []
        for end, n, y in zip(ends, raw["n"], (energy - self.mean) / self.std):
            z, x = all_z[end - n:end], all_x[end - n:end]
            pairs = cKDTree(x.numpy()).query_pairs(cfg.cutoff, output_type="ndarray")
            edge = torch.from_numpy(pairs.T.copy()).long()
            self.graphs.append((z, edge, (x[edge[0]] - x[edge[1]]).norm(dim=1), y))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def collate(graphs):
    sizes = torch.tensor([len(g[0]) for g in graphs])
    offsets = sizes.cumsum(0) - sizes
    return {"z": torch.cat([g[0] for g in graphs]),
            "edge": torch.cat([g[1] + o for g, o in zip(graphs, offsets)], 1),
            "dist": torch.cat([g[2] for g in graphs]),
            "owner": torch.repeat_interleave(torch.arange(len(graphs)), sizes),
            "y": torch.stack([g[3] for g in graphs])}


class Interaction(nn.Module):
    def __init__(self, dim, rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(rbf, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.before = nn.Linear(dim, dim, bias=False)
        self.after = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, edge, rbf, fade):
        w = self.filter(rbf) * fade
        sent = self.before(h)
        i, j = edge
        gathered = torch.zeros_like(h).index_add(0, i, sent.index_select(0, j) * w)
        gathered = gathered.index_add(0, j, sent.index_select(0, i) * w)
        return h + self.after(gathered)


@register("cfconv")
class EnergyModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cutoff = cfg.cutoff
        self.embed = nn.Embedding(10, cfg.dim)
        self.register_buffer("centres", torch.linspace(0.8, cfg.cutoff, cfg.rbf))
        self.blocks = nn.ModuleList([Interaction(cfg.dim, cfg.rbf) for _ in range(cfg.layers)])
        self.out = nn.Sequential(nn.Linear(cfg.dim, cfg.dim // 2), nn.SiLU(), nn.Linear(cfg.dim // 2, 1))

    def forward(self, batch):
        h = self.embed(batch["z"])
        d = batch["dist"][:, None]
        rbf = torch.exp(-40 * (d - self.centres) ** 2)
        fade = 0.5 * (torch.cos(torch.pi * d / self.cutoff) + 1)
        for block in self.blocks:
            h = block(h, batch["edge"], rbf, fade)
        atom = self.out(h).squeeze(1)
        return torch.zeros_like(batch["y"]).index_add(0, batch["owner"], atom)


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = deepcopy(model).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.lerp_(p, 1 - self.decay)


class Engine:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        data = Molecules(prepare(cfg), cfg)
        train, val = torch.utils.data.random_split(data, [len(data) - 300, 300])
        self.std = data.std.item()
        self.loader = DataLoader(train, cfg.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
        self.val_loader = DataLoader(val, 100, collate_fn=collate)
        self.model = REGISTRY[cfg.model](cfg)
        self.ema = EMA(self.model, cfg.ema)
        self.opt = torch.optim.AdamW(self.model.parameters(), cfg.lr, weight_decay=1e-5)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.97)
        self.step = 0

    def train_step(self, batch):
        pred = self.model(batch)
        loss = F.huber_loss(pred, batch["y"])
        self.opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.opt.step()
        self.ema.update(self.model)
        self.step += 1
        return {"loss": loss.item(), "mae": (pred - batch["y"]).abs().mean().item() * self.std, "norm": norm.item()}

    @torch.no_grad()
    def validate(self):
        err = [(self.ema.model(b) - b["y"]).abs() for b in self.val_loader]
        return torch.cat(err).mean().item() * self.std

    def run(self):
        best = float("inf")
        for epoch in range(self.cfg.epochs):
            start, first = time.time(), self.step
            for batch in self.loader:
                row = self.train_step(batch)
                if self.step % self.cfg.log_every == 0:
                    rate = (self.step - first) / (time.time() - start)
                    print(f"{epoch} {self.step} " + " ".join(f"{k} {v:.4f}" for k, v in row.items())
                          + f" {rate:.1f} it/s", flush=True)
            self.sched.step()
            mae = self.validate()
            print(f"epoch {epoch} val MAE {mae:.4f}", flush=True)
            if mae < best:
                best = mae
                torch.save(self.ema.model.state_dict(), FOLDER / "best.pt")


if __name__ == "__main__":
    Engine(Config()).run()
