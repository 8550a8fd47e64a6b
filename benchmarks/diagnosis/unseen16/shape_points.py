"""Classifying point clouds of solids: two set-abstraction levels in the manner of PointNet++."""
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(tempfile.gettempdir()) / "shape_points_data"
CLASSES = ["sphere", "box", "cylinder", "cone", "torus", "ellipsoid", "plane", "helix"]


@dataclass
class Config:
    clouds: int = 1600
    points: int = 2048
    batch_size: int = 16
    lr: float = 1e-3
    epochs: int = 60
    smoothing: float = 0.1
    log_every: int = 20
    seed: int = 2


def sample_shape(kind, n, rng):
    u, v = rng.random(n), rng.random(n)
    a, b = 2 * np.pi * u, 2 * np.pi * v
    if kind in ("sphere", "ellipsoid"):
        p = rng.normal(size=(n, 3))
        p /= np.linalg.norm(p, axis=1, keepdims=True)
        p *= 1 if kind == "sphere" else rng.uniform(0.4, 1.2, 3)
    elif kind == "box":
        p = rng.uniform(-1, 1, (n, 3))
        axis = rng.integers(0, 3, n)
        p[np.arange(n), axis] = np.sign(p[np.arange(n), axis])
        p *= rng.uniform(0.4, 1.0, 3)
    elif kind == "cylinder":
        p = np.stack([np.cos(a), np.sin(a), (2 * v - 1) * rng.uniform(0.6, 1.6)], 1)
    elif kind == "cone":
        r = np.sqrt(v)
        p = np.stack([r * np.cos(a), r * np.sin(a), (1 - r) * rng.uniform(1.0, 2.0)], 1)
    elif kind == "torus":
        r = rng.uniform(0.2, 0.4)
        p = np.stack([(1 + r * np.cos(b)) * np.cos(a), (1 + r * np.cos(b)) * np.sin(a), r * np.sin(b)], 1)
    elif kind == "plane":
        p = np.stack([2 * u - 1, 2 * v - 1, 0.1 * np.sin(3 * a)], 1)
    else:
        p = np.stack([np.cos(2 * a), np.sin(2 * a), 2 * u - 1], 1) + 0.1 * rng.normal(size=(n, 3))
    return p


def prepare(cfg):
    if (FOLDER / "labels.npy").exists():
        return
    (FOLDER / "clouds").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    labels = rng.integers(0, len(CLASSES), cfg.clouds)
    for i, label in enumerate(labels):
        p = sample_shape(CLASSES[label], 2 * cfg.points, rng)
        rot, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        p = p @ rot.T + 0.02 * rng.normal(size=p.shape)
        np.save(FOLDER / "clouds" / f"{i:05d}.npy", p.astype(np.float32))
    np.save(FOLDER / "labels.npy", labels)


class CloudDataset(Dataset):
    def __init__(self, indices, cfg, train):
        self.indices, self.points, self.train = indices, cfg.points, train
        self.labels = np.load(FOLDER / "labels.npy")

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        k = self.indices[i]
        p = np.load(FOLDER / "clouds" / f"{k:05d}.npy")
        p = p[np.random.permutation(len(p))[:self.points]] if self.train else p[:self.points]
        p = p - p.mean(0)
        p = p / np.linalg.norm(p, axis=1).max()
        if self.train:
            p = p * np.random.uniform(0.8, 1.25, (1, 3)) + np.random.uniform(-0.1, 0.1, (1, 3))
        return torch.from_numpy(p.astype(np.float32)), int(self.labels[k])


def square_distance(a, b):
    return (a.pow(2).sum(-1)[:, :, None] + b.pow(2).sum(-1)[:, None] - 2 * a @ b.transpose(1, 2)).clamp_min(0)


def gather(points, idx):
    batch = torch.arange(points.shape[0]).view(-1, *([1] * (idx.dim() - 1)))
    return points[batch, idx]


def random_centres(xyz, count):
    b, n, _ = xyz.shape
    return torch.stack([torch.randperm(n)[:count] for _ in range(b)])


def query_ball(radius, k, xyz, centres):
    """Indices of up to k points within the radius of each centre, in order; the first fills the gaps."""
    b, n, _ = xyz.shape
    idx = torch.arange(n).repeat(b, centres.shape[1], 1)
    idx[square_distance(centres, xyz) > radius ** 2] = n
    idx = idx.sort(-1)[0][:, :, :k]
    first = idx[:, :, :1].expand_as(idx)
    return torch.where(idx == n, first, idx)


class SetAbstraction(nn.Module):
    def __init__(self, count, radius, k, cin, widths):
        super().__init__()
        self.count, self.radius, self.k = count, radius, k
        layers, c = [], cin + 3
        for w in widths:
            layers += [nn.Linear(c, w), nn.LayerNorm(w), nn.ReLU()]
            c = w
        self.mlp = nn.Sequential(*layers)

    def forward(self, xyz, feats):
        with torch.no_grad():
            centres = gather(xyz, random_centres(xyz, self.count))
            idx = query_ball(self.radius, self.k, xyz, centres)
        local = gather(xyz, idx) - centres[:, :, None]
        if feats is not None:
            local = torch.cat([local, gather(feats, idx)], -1)
        return centres, self.mlp(local).amax(2)


class PointClassifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.sa1 = SetAbstraction(256, 0.25, 16, 0, [32, 48])
        self.sa2 = SetAbstraction(64, 0.5, 16, 48, [64, 96])
        self.last = nn.Sequential(nn.Linear(99, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 256))
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, classes))

    def forward(self, xyz):
        c1, f1 = self.sa1(xyz, None)
        c2, f2 = self.sa2(c1, f1)
        return self.head(self.last(torch.cat([c2, f2], -1)).amax(1))


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        prepare(cfg)
        cut = int(cfg.clouds * 0.95)
        self.train = DataLoader(CloudDataset(range(cut), cfg, True), cfg.batch_size, shuffle=True, drop_last=True)
        self.val = DataLoader(CloudDataset(range(cut, cfg.clouds), cfg, False), cfg.batch_size)
        self.model = PointClassifier(len(CLASSES))
        self.opt = torch.optim.Adam(self.model.parameters(), cfg.lr, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 20, 0.7)

    def run_epoch(self, epoch):
        start, seen, right = time.time(), 0, 0
        for step, (xyz, label) in enumerate(self.train, 1):
            logits = self.model(xyz)
            loss = F.cross_entropy(logits, label, label_smoothing=self.cfg.smoothing)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            seen += len(label)
            right += (logits.argmax(1) == label).sum().item()
            if step % self.cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} acc {right / seen:.3f} "
                      f"{seen / (time.time() - start):.1f} clouds/s", flush=True)

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.val)
        self.model.train()
        return right / len(self.val.dataset)

    def run(self):
        for epoch in range(self.cfg.epochs):
            self.run_epoch(epoch)
            self.sched.step()
            print(f"epoch {epoch} val accuracy {self.accuracy():.3f}", flush=True)
            torch.save(self.model.state_dict(), FOLDER / "last.pt")


if __name__ == "__main__":
    Runner(Config()).run()
