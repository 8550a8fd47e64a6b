"""Photometric classification of transients from simulated survey alerts."""
import argparse
import gc
import logging
import os
import pickle
import tempfile
import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("transients")

NAME = "transient_classifier"
BANDS = ("g", "r", "i", "z")
CLASSES = ("SNIa", "SNII", "SNIbc", "TDE", "AGN")


@dataclass
class Host:
    photo_z: float
    mass: float
    tags: List[str] = field(default_factory=list)


@dataclass
class BandCurve:
    flux: np.ndarray
    error: np.ndarray
    history: List[dict] = field(default_factory=list)


@dataclass
class Alert:
    object_id: str
    label: int
    host: Optional[Host]
    meta: Dict[str, object]
    curves: Dict[str, BandCurve]


def simulate(n_objects, n_bins, seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(-1, 3, n_bins)
    labels = rng.integers(0, len(CLASSES), n_objects)
    rise = np.array([0.15, 0.1, 0.12, 0.3, 0.8])[labels] * rng.uniform(0.7, 1.3, n_objects)
    fall = np.array([0.5, 1.6, 0.4, 1.0, 2.0])[labels] * rng.uniform(0.7, 1.3, n_objects)
    colour = np.array([0.3, 0.1, 0.5, -0.3, 0.0])[labels] + rng.normal(0, 0.1, n_objects)
    peak, redshift = rng.gamma(3.0, 2.0, n_objects), rng.uniform(0.01, 0.4, n_objects)
    shape = np.exp(-np.clip(t, 0, None) / fall[:, None]) / (1 + np.exp(-t / rise[:, None]))
    band_gain = peak[:, None] * np.exp(colour[:, None] * np.arange(-1.5, 2.5))
    flux = shape[:, None, :] * band_gain[:, :, None]
    error = 0.3 + 0.05 * flux
    flux = flux + error * rng.standard_normal(flux.shape)
    seen = rng.random(flux.shape) < 0.6
    flux, error = (flux * seen).astype(np.float32), (error * seen).astype(np.float32)
    alerts = []
    for i in range(n_objects):
        host = Host(float(redshift[i] + 0.02), float(9 + peak[i] / 10), ["ps1", "gaia"])
        curves = {b: BandCurve(flux[i, j].copy(), error[i, j].copy(),
                               [{"night": k, "limit": [20.5, 21.0]} for k in range(2)])
                  for j, b in enumerate(BANDS)}
        meta = {"field": int(i % 640), "programme": {"id": i % 3, "nights": [i, i + 3]},
                "flags": [], "xmatch": {"gaia": [], "ps1": []}}
        alerts.append(Alert(f"SIM{i:07d}", int(labels[i]), host, meta, curves))
    return alerts


def load_alerts(args):
    folder = os.path.join(tempfile.gettempdir(), NAME)
    path = os.path.join(folder, f"alerts_{args.objects}_{args.bins}.pkl")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(path):
        with open(path + ".tmp", "wb") as f:
            pickle.dump(simulate(args.objects, args.bins, args.seed), f, protocol=5)
        os.replace(path + ".tmp", path)
    with open(path, "rb") as f:
        return pickle.load(f)


class AlertDataset(Dataset):
    def __init__(self, alerts):
        self.alerts = alerts

    def __len__(self):
        return len(self.alerts)

    def __getitem__(self, i):
        return self.alerts[i]


def collate(alerts):
    flux = np.stack([a.curves[b].flux for a in alerts for b in BANDS])
    error = np.stack([a.curves[b].error for a in alerts for b in BANDS])
    n_bins = flux.shape[-1]
    x = torch.from_numpy(np.stack([np.arcsinh(flux), error > 0, np.log1p(error)], 1).astype(np.float32))
    x = x.view(len(alerts), len(BANDS) * 3, n_bins).transpose(1, 2)
    host = torch.tensor([[a.host.photo_z, a.host.mass / 10] for a in alerts])
    return x, host, torch.tensor([a.label for a in alerts])


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(h.transpose(1, 2).reshape(b, t, d))
        return x + self.ffn(self.norm2(x))


class TransientNet(nn.Module):
    def __init__(self, n_bins, dim, depth, heads):
        super().__init__()
        self.embed = nn.Linear(len(BANDS) * 3, dim)
        self.time = nn.Parameter(torch.randn(n_bins, dim) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(dim + 2), nn.Linear(dim + 2, dim), nn.ReLU(),
                                  nn.Linear(dim, len(CLASSES)))

    def forward(self, x, host):
        h = self.embed(x) + self.time
        for layer in self.layers:
            h = layer(h)
        return self.head(torch.cat([h.mean(1), host], -1))


class Trainer:
    def __init__(self, model, lr, device):
        self.model = model.to(device)
        self.device = device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.steps = 0

    def training_step(self, x, host, y):
        x, host, y = x.to(self.device), host.to(self.device), y.to(self.device)
        logits = self.model(x, host)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item(), (logits.argmax(1) == y).float().mean().item()

    def release_memory(self):
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def fit(self, loader, max_steps, every):
        start = time.time()
        while self.steps < max_steps:
            for x, host, y in loader:
                loss, acc = self.training_step(x, host, y)
                del x, host, y
                self.release_memory()
                self.steps += 1
                if self.steps % every == 0:
                    log.info("step %5d | loss %.4f | acc %.3f | %.1f s", self.steps, loss, acc,
                             time.time() - start)
                if self.steps >= max_steps:
                    break


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--objects", type=int, default=1500)
    p.add_argument("--bins", type=int, default=40)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--max-steps", type=int, default=1500)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    torch.manual_seed(args.seed)
    alerts = load_alerts(args)
    log.info("%d alerts", len(alerts))
    loader = DataLoader(AlertDataset(alerts), batch_size=args.batch_size, shuffle=True,
                        drop_last=True, collate_fn=collate)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    Trainer(TransientNet(args.bins, args.dim, args.depth, 4), 5e-4, device).fit(loader, args.max_steps, 25)


if __name__ == "__main__":
    main()
