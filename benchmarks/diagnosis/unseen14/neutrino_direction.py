"""Zenith/azimuth reconstruction for a water-Cherenkov neutrino telescope.

Events live in a SQLite file, the format that the simulation group ships: one
row per detected pulse in ``pulsemap`` and one row per event in ``truth``.
"""
import argparse
import logging
import os
import sqlite3
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
logger = logging.getLogger("neutrino_direction")

NAME = "neutrino_direction"
DB_NAME = "sim_upgrade.db"
FEATURES = ["dom_x", "dom_y", "dom_z", "dom_time", "charge"]
TRUTH = ["zenith", "azimuth", "energy"]
SPEED = 0.299

SCHEMA = """
CREATE TABLE truth (event_no INTEGER PRIMARY KEY, zenith REAL, azimuth REAL, energy REAL);
CREATE TABLE pulsemap (event_no INTEGER, dom_x REAL, dom_y REAL, dom_z REAL, dom_time REAL, charge REAL);
"""


def direction(zenith, azimuth):
    s = np.sin(zenith)
    return np.stack([s * np.cos(azimuth), s * np.sin(azimuth), np.cos(zenith)], -1)


def build_database(folder, n_events, seed):
    """Simulate straight tracks through a regular array and store their pulses."""
    path = os.path.join(folder, DB_NAME)
    if os.path.exists(path):
        return path
    os.makedirs(folder, exist_ok=True)
    logger.info("simulating %d events", n_events)
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(-5, 6), np.arange(-5, 6), np.arange(-10, 11),
                                indexing="ij"), -1).reshape(-1, 3) * np.array([60.0, 60.0, 25.0])
    truth, pulses = [], []
    for event_no in range(n_events):
        zenith, azimuth = np.arccos(rng.uniform(-1, 1)), rng.uniform(0, 2 * np.pi)
        energy = 10 ** rng.uniform(1, 4)
        d = direction(zenith, azimuth)
        vertex = rng.normal(0, 60, 3)
        rel = grid - vertex
        along = rel @ d
        dist = np.linalg.norm(rel - along[:, None] * d, axis=1)
        weight = np.exp(-dist / 35.0)
        n = int(np.clip(20 + 12 * np.log10(energy), 20, 70) + rng.integers(0, 20))
        hit = rng.choice(len(grid), n, replace=False, p=weight / weight.sum())
        t = (along[hit] + 1.1 * dist[hit]) / SPEED + rng.normal(0, 5, n)
        q = rng.gamma(2.0, 0.5, n) * (1 + 20 * weight[hit])
        truth.append((event_no, float(zenith), float(azimuth), float(energy)))
        block = np.column_stack([grid[hit], t, q]).tolist()
        pulses.extend((event_no, *row) for row in block)
    tmp = path + ".part"
    if os.path.exists(tmp):
        os.remove(tmp)
    con = sqlite3.connect(tmp)
    con.executescript(SCHEMA)
    con.executemany("INSERT INTO truth VALUES (?,?,?,?)", truth)
    con.executemany("INSERT INTO pulsemap VALUES (?,?,?,?,?,?)", pulses)
    con.commit()
    con.close()
    os.replace(tmp, path)
    return path


class SQLiteEvents(Dataset):
    """One item = all pulses of an event plus its truth labels."""

    def __init__(self, path, selection):
        self.path = path
        self.selection = list(selection)
        self._con = None

    def _connection(self):
        if self._con is None:
            self._con = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        return self._con

    def _query(self, table, columns, event_no):
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE event_no = ?"
        return self._connection().execute(sql, (event_no,)).fetchall()

    def __len__(self):
        return len(self.selection)

    def __getitem__(self, i):
        event_no = self.selection[i]
        x = np.asarray(self._query("pulsemap", FEATURES, event_no), dtype=np.float32)
        zenith, azimuth, energy = self._query("truth", TRUTH, event_no)[0]
        x[:, :3] /= 300.0
        x[:, 3] = (x[:, 3] - x[:, 3].mean()) / 1000.0
        x[:, 4] = np.log10(1.0 + x[:, 4])
        target = direction(zenith, azimuth).astype(np.float32)
        return x, target, np.float32(np.log10(energy))


def collate(events):
    xs, targets, energies = zip(*events)
    sizes = torch.tensor([len(x) for x in xs])
    batch = torch.repeat_interleave(torch.arange(len(xs)), sizes)
    return (torch.from_numpy(np.concatenate(xs)), batch,
            torch.from_numpy(np.stack(targets)), torch.from_numpy(np.asarray(energies)))


class PulseBlock(nn.Module):
    """Per-pulse MLP with the event's mean fed back to its pulses."""

    def __init__(self, width):
        super().__init__()
        self.lin1 = nn.Linear(width, 2 * width)
        self.lin2 = nn.Linear(2 * width, width)
        self.ctx = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, batch, counts):
        pooled = x.new_zeros(counts.shape[0], x.shape[1]).index_add_(0, batch, x) / counts
        h = x + self.ctx(pooled)[batch]
        return self.norm(x + self.lin2(F.relu(self.lin1(h))))


class DirectionNet(nn.Module):
    def __init__(self, width=128, depth=2):
        super().__init__()
        self.embed = nn.Linear(len(FEATURES), width)
        self.blocks = nn.ModuleList(PulseBlock(width) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x, batch, n_events):
        counts = torch.bincount(batch, minlength=n_events).unsqueeze(1).float()
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, batch, counts)
        h = h.new_zeros(n_events, h.shape[1]).index_add_(0, batch, h) / counts
        out = self.head(h)
        return out[:, :3], out[:, 3]


def von_mises_fisher_loss(pred, target):
    kappa = pred.norm(dim=1).clamp_min(1e-4)
    log_c = torch.log(kappa) - kappa - torch.log1p(-torch.exp(-2 * kappa))
    return -(log_c + (pred * target).sum(1)).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--events", type=int, default=1000)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    path = build_database(os.path.join(tempfile.gettempdir(), NAME), args.events, args.seed)
    dataset = SQLiteEvents(path, range(args.events))
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, collate_fn=collate, persistent_workers=True,
                        prefetch_factor=4)
    model = DirectionNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    logger.info("%d parameters", sum(p.numel() for p in model.parameters()))

    step, start, running = 0, time.time(), 0.0
    while step < args.steps:
        for x, batch, target, energy in loader:
            pred, log_e = model(x, batch, target.shape[0])
            loss = von_mises_fisher_loss(pred, target) + 0.5 * F.smooth_l1_loss(log_e, energy)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step % 50 == 0:
                cos = F.cosine_similarity(pred.detach(), target).clamp(-1, 1)
                logger.info("step %d loss %.4f opening angle %.1f deg (%.1f s)", step, running / 50,
                            torch.rad2deg(cos.acos()).median().item(), time.time() - start)
                running = 0.0
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
