"""Prototypical Networks for Few-shot Learning (Snell, Swersky, Zemel 2017), re-implementation.

Omniglot stand-in: random stroke characters, 28x28, 1000 classes, 20 drawings each,
and as in the paper every rotation by 90 degrees is a class of its own.
"""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage.draw import line
from torch.utils.data import DataLoader, Dataset, Sampler

CACHE = os.path.join(tempfile.gettempdir(), "protonet")
N_CHARS, PER_CHAR, SIZE = 1000, 20, 28
N_WAY, K_SHOT, N_QUERY = 10, 1, 5
EPISODES = 500       # per epoch
EPOCHS = 8
HIDDEN = 32


def draw(points, rng):
    img = np.zeros((SIZE, SIZE), dtype=np.uint8)
    pts = np.clip(points + rng.normal(0, 1.0, points.shape), 2, SIZE - 3).astype(int)
    for (r0, c0), (r1, c1) in zip(pts[:-1], pts[1:]):
        rr, cc = line(r0, c0, r1, c1)
        img[rr, cc] = 255
        img[rr, cc + 1] = 255
    return img


def build():
    os.makedirs(CACHE, exist_ok=True)
    fn = os.path.join(CACHE, "chars.npz")
    if not os.path.exists(fn):
        rng = np.random.default_rng(7)
        images, labels = [], []
        for c in range(N_CHARS):
            proto = rng.uniform(3, SIZE - 4, (rng.integers(4, 7), 2))
            for _ in range(PER_CHAR):
                img = draw(proto, rng)
                for k in range(4):
                    images.append(np.rot90(img, k))
                    labels.append(c + k * N_CHARS)
        perm = rng.permutation(len(labels))
        np.savez(fn, x=np.stack(images)[perm], y=np.array(labels)[perm])
    z = np.load(fn)
    return z["x"], z["y"]


class Characters(Dataset):
    def __init__(self, split):
        x, y = build()
        keep = y % N_CHARS < 900 if split == "train" else y % N_CHARS >= 900
        self.images = torch.from_numpy(x[keep])
        self.labels = y[keep].tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i].float().div(255).unsqueeze(0), self.labels[i]


class EpisodeSampler(Sampler):
    """Yields the indices of one N-way episode: per class K support, then Q query."""

    def __init__(self, labels, n_way, n_per_class, episodes):
        self.labels = labels
        self.classes = sorted(set(labels))
        self.n_way = n_way
        self.n_per_class = n_per_class
        self.episodes = episodes

    def __len__(self):
        return self.episodes

    def __iter__(self):
        for _ in range(self.episodes):
            episode = []
            for c in np.random.choice(self.classes, self.n_way, replace=False):
                members = [i for i, label in enumerate(self.labels) if label == c]
                episode.extend(np.random.choice(members, self.n_per_class, replace=False).tolist())
            yield episode


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


class ProtoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            conv_block(1, HIDDEN), conv_block(HIDDEN, HIDDEN), conv_block(HIDDEN, HIDDEN), conv_block(HIDDEN, HIDDEN), nn.Flatten())

    def forward(self, x):
        z = self.encoder(x).view(N_WAY, K_SHOT + N_QUERY, -1)
        prototypes = z[:, :K_SHOT].mean(1)
        queries = z[:, K_SHOT:].flatten(0, 1)
        return -torch.cdist(queries, prototypes).pow(2)


def run_epoch(model, loader, opt=None):
    target = torch.arange(N_WAY).repeat_interleave(N_QUERY)
    model.train(opt is not None)
    losses, accs = [], []
    for n, (x, _) in enumerate(loader, 1):
        with torch.set_grad_enabled(opt is not None):
            logits = model(x)
            loss = F.cross_entropy(logits, target)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        losses.append(loss.item())
        accs.append((logits.argmax(1) == target).float().mean().item())
        if opt is not None and n % 50 == 0:
            print(f"    episode {n}/{len(loader)}  loss {np.mean(losses[-50:]):.3f}  acc {np.mean(accs[-50:]):.3f}", flush=True)
    return np.mean(losses), np.mean(accs)


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)
    train, test = Characters("train"), Characters("test")
    train_loader = DataLoader(train, batch_sampler=EpisodeSampler(train.labels, N_WAY, K_SHOT + N_QUERY, EPISODES))
    test_loader = DataLoader(test, batch_sampler=EpisodeSampler(test.labels, N_WAY, K_SHOT + N_QUERY, 20))

    model = ProtoNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 4, gamma=0.5)
    for epoch in range(EPOCHS):
        t = time.time()
        loss, acc = run_epoch(model, train_loader, opt)
        vloss, vacc = run_epoch(model, test_loader)
        sched.step()
        print(f"epoch {epoch}: train {loss:.3f}/{acc:.3f}  test {vloss:.3f}/{vacc:.3f}  ({time.time() - t:.0f}s)", flush=True)
