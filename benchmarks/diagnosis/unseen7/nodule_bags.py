#!/usr/bin/env python
# Patient-level malignancy from a set of CT candidate patches (attention MIL).
# Each patient has 20 candidate patches from the detection step, a patient is positive
# when at least one of them is a spiculated nodule.
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

PATCH = 32
CANDIDATES = 20


def draw_patch(rng, kind):
    """One 32x32 patch in a lung window, roughly in [0, 1]."""
    yy, xx = np.mgrid[0:PATCH, 0:PATCH].astype(np.float32)
    img = rng.normal(0.12, 0.05, (PATCH, PATCH)).astype(np.float32)
    # a vessel crossing the patch
    ang = rng.uniform(0, np.pi)
    d = np.abs((xx - PATCH / 2) * np.sin(ang) - (yy - PATCH / 2) * np.cos(ang) + rng.uniform(-8, 8))
    img += 0.35 * np.exp(-(d / rng.uniform(1.0, 2.2)) ** 2)
    if kind == "vessel":
        return img
    cy, cx = rng.uniform(11, 21, 2)
    r0 = rng.uniform(3.0, 6.0)
    phi = np.arctan2(yy - cy, xx - cx)
    r = np.hypot(yy - cy, xx - cx)
    edge = r0
    if kind == "spiculated":
        edge = r0 + 1.6 * np.cos(rng.integers(6, 10) * phi + rng.uniform(0, 6.28))
    img += 0.6 / (1.0 + np.exp(2.0 * (r - edge)))
    return img


class CandidateBags(Dataset):
    def __init__(self, patients, seed):
        rng = np.random.default_rng(seed)
        self.x = np.empty((patients, CANDIDATES, 1, PATCH, PATCH), np.float32)
        self.y = np.empty(patients, np.float32)
        for p in range(patients):
            positive = rng.random() < 0.5
            kinds = list(rng.choice(["vessel", "smooth"], size=CANDIDATES, p=[0.6, 0.4]))
            if positive:
                for j in rng.choice(CANDIDATES, size=rng.integers(1, 4), replace=False):
                    kinds[j] = "spiculated"
            for j, kind in enumerate(kinds):
                self.x[p, j, 0] = draw_patch(rng, kind)
            self.y[p] = float(positive)
        self.x = (self.x - self.x.mean()) / self.x.std()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), torch.tensor(self.y[i])


class PatchEncoder(nn.Module):
    def __init__(self, width=16, out=96):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.GroupNorm(4, o), nn.ReLU(inplace=True),
                nn.MaxPool2d(2))

        self.body = nn.Sequential(block(1, width), block(width, 2 * width), block(2 * width, 4 * width))
        self.head = nn.Linear(4 * width, out)

    def forward(self, x):
        return F.relu(self.head(self.body(x).mean(dim=(2, 3))))


class AttentionMIL(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.encoder = PatchEncoder(out=dim)
        self.att_v = nn.Linear(dim, 48)
        self.att_u = nn.Linear(dim, 48)
        self.att_w = nn.Linear(48, 1)
        self.cls = nn.Linear(dim, 1)

    def pool(self, feats):
        a = self.att_w(torch.tanh(self.att_v(feats)) * torch.sigmoid(self.att_u(feats)))
        a = torch.softmax(a, dim=0)
        return (a * feats).sum(dim=0), a

    def forward(self, bag):
        # bag: candidates x 1 x H x W of one patient
        feats = torch.cat([self.encoder(patch.unsqueeze(0)) for patch in bag])
        pooled, a = self.pool(feats)
        return self.cls(pooled).squeeze(-1), a


class Trainer:
    def __init__(self, args):
        self.args = args
        data = CandidateBags(args.patients, args.seed)
        n_val = args.patients // 6
        gen = torch.Generator().manual_seed(args.seed)
        train, val = random_split(data, [len(data) - n_val, n_val], generator=gen)
        self.train_dl = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
        self.val_dl = DataLoader(val, batch_size=args.batch_size)
        self.model = AttentionMIL()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=1e-3)
        self.start = time.time()

    def predict(self, bags):
        return torch.stack([self.model(bag)[0] for bag in bags])

    def train_epoch(self, epoch):
        self.model.train()
        total = 0.0
        for bags, labels in self.train_dl:
            logits = self.predict(bags)
            loss = F.binary_cross_entropy_with_logits(logits, labels)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(self.train_dl)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        good = n = 0
        for bags, labels in self.val_dl:
            pred = self.predict(bags) > 0
            good += (pred == labels.bool()).sum().item()
            n += len(labels)
        return good / n

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            loss = self.train_epoch(epoch)
            msg = f"epoch {epoch:4d}  loss {loss:.4f}  {time.time() - self.start:.0f}s"
            if epoch % 10 == 0:
                msg += f"  val acc {self.validate():.3f}"
            print(msg, flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--patients", type=int, default=240)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=1000)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    Trainer(args).fit()


if __name__ == "__main__":
    main()
