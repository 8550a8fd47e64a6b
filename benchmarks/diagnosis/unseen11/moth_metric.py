"""Metric learning on moth wing crops (species re-identification).

Batch-hard triplet loss (Hermans et al. 2017) with P x K batches. The crops are
procedurally drawn wing patterns: every species has its own eye-spot and banding
parameters, every specimen its own wear, rotation and exposure.
"""
import argparse
import csv
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

ROOT = os.path.join(tempfile.gettempdir(), "moth_metric")
GENERA = ["Noctua", "Agrotis", "Xestia", "Catocala", "Eupithecia", "Idaea", "Biston", "Lymantria"]


def draw_species(rng, n, size):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    freq, phase, tilt = rng.uniform(2, 9), rng.uniform(0, 6.28), rng.uniform(-1, 1)
    cx, cy, rad = rng.uniform(0.3, 0.7, 2).tolist() + [rng.uniform(0.08, 0.2)]
    dx = rng.normal(0, 0.03, (n, 1, 1)).astype(np.float32)
    gain = rng.uniform(0.7, 1.2, (n, 1, 1)).astype(np.float32)
    bands = np.sin(freq * 6.28 * (yy + tilt * xx + dx) + phase)
    spot = np.exp(-((xx - cx + dx) ** 2 + (yy - cy) ** 2) / rad ** 2)
    img = 110 + gain * (45 * bands + 70 * spot) + 12 * rng.standard_normal((n, size, size), dtype=np.float32)
    return np.clip(img, 0, 255).astype(np.uint8)


def prepare(num_species, num_images, size, seed=5):
    path = os.path.join(ROOT, f"moths_{num_species}_{num_images}_{size}.npz")
    if not os.path.exists(path):
        os.makedirs(ROOT, exist_ok=True)
        rng = np.random.default_rng(seed)
        # collection sizes are long-tailed, as in every museum drawer
        weights = rng.pareto(2.0, num_species) + 0.4
        counts = np.maximum(6, (weights / weights.sum() * num_images)).astype(int)
        images = np.concatenate([draw_species(rng, c, size) for c in counts])
        names = [f"{GENERA[i % len(GENERA)]}_sp{i:04d}" for i in range(num_species)]
        labels = np.repeat(np.array(names), counts)
        order = rng.permutation(len(labels))
        np.savez(path, images=images[order], labels=labels[order])
    z = np.load(path)
    return z["images"], z["labels"]


class MothDataset(Dataset):
    def __init__(self, images, labels, train=True):
        self.images = images
        self.labels = labels
        self.classes = sorted(set(labels.tolist()))
        self.class_to_idx = {c: i for i, c in enumerate(self.classes)}
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = torch.from_numpy(self.images[i]).float().div_(127.5).sub_(1.0)
        if self.train and random.random() < 0.5:
            img = img.flip(-1)
        return img.unsqueeze(0), self.class_to_idx[str(self.labels[i])]


class PKSampler(Sampler):
    """Yields batches of P species with K specimens each."""

    def __init__(self, labels, p, k, batches, seed=0):
        self.labels = np.asarray(labels)
        self.classes = np.unique(self.labels)
        self.p, self.k, self.batches = p, k, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for c in self.rng.choice(self.classes, self.p, replace=False):
                idx = np.where(self.labels == c)[0]
                batch.extend(self.rng.choice(idx, self.k, replace=len(idx) < self.k).tolist())
            yield batch


class WingNet(nn.Module):
    def __init__(self, dim=64, width=12):
        super().__init__()

        def block(i, o, stride):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.features = nn.Sequential(
            block(1, width, 2), block(width, width * 2, 1), block(width * 2, width * 4, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.embed = nn.Linear(width * 4, dim)

    def forward(self, x):
        return F.normalize(self.embed(self.features(x)), dim=1)


def batch_hard_triplet(emb, labels, margin):
    dist = torch.cdist(emb, emb)
    same = labels[:, None] == labels[None, :]
    pos = dist.masked_fill(~same, -1.0).amax(dim=1)
    neg = dist.masked_fill(same, 1e6).amin(dim=1)
    return F.relu(pos - neg + margin).mean(), (pos < neg).float().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--species", type=int, default=500)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("-P", type=int, default=24)
    parser.add_argument("-K", type=int, default=4)
    parser.add_argument("--batches-per-epoch", type=int, default=250)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--margin", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = prepare(args.species, args.images, args.size)
    dataset = MothDataset(images, labels)
    sampler = PKSampler(labels, args.P, args.K, args.batches_per_epoch)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=args.workers,
                        persistent_workers=args.workers > 0)
    print(f"{len(dataset)} specimens of {len(dataset.classes)} species")

    model = WingNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    log_file = open(os.path.join(ROOT, "train_log.csv"), "w", newline="")
    writer = csv.writer(log_file)
    writer.writerow(["epoch", "loss", "active_acc", "seconds"])

    for epoch in range(1, args.epochs + 1):
        model.train()
        t0, loss_sum, acc_sum = time.time(), 0.0, 0.0
        for x, y in loader:
            loss, acc = batch_hard_triplet(model(x), y, args.margin)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item()
            acc_sum += acc.item()
        n, dt = len(loader), time.time() - t0
        print(f"[{epoch:02d}/{args.epochs}] loss {loss_sum / n:.4f}  rank1-in-batch {acc_sum / n:.3f}  {dt:.1f}s", flush=True)
        writer.writerow([epoch, f"{loss_sum / n:.5f}", f"{acc_sum / n:.4f}", f"{dt:.2f}"])
        log_file.flush()
        torch.save(model.state_dict(), os.path.join(ROOT, "last.pt"))


if __name__ == "__main__":
    main()
