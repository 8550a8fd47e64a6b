"""Fine-grained bird retrieval: an embedding head on frozen backbone features, trained with the
multi-similarity loss (Wang et al., CVPR 2019). Classes of the test split are disjoint from the training classes.
"""
import argparse
import os
import tempfile

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset

DATA = os.path.join(tempfile.gettempdir(), "bird_retrieval_data")


def make_data(folder, n_species=200, per_species=50, dim=1024, seed=11):
    """Pooled features as a frozen convnet would give them: families, species within, pose and background."""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    families = rng.normal(size=(40, 96))
    species = families[rng.integers(40, size=n_species)] + 0.45 * rng.normal(size=(n_species, 96))
    mix = rng.normal(size=(128, dim)) / np.sqrt(128)
    labels = np.repeat(np.arange(n_species), per_species)
    latent = np.concatenate([species[labels] + 0.7 * rng.normal(size=(len(labels), 96)),
                             2.0 * rng.normal(size=(len(labels), 32))], axis=1)
    feats = np.maximum(latent @ mix + 0.3 * rng.normal(size=(len(labels), dim)), 0).astype(np.float32)
    tmp = os.path.join(folder, "birds.tmp")
    with h5py.File(tmp, "w") as f:
        f["features"] = feats
        f["labels"] = labels
    os.rename(tmp, os.path.join(folder, "birds.h5"))


def load_split(split):
    with h5py.File(os.path.join(DATA, "birds.h5"), "r") as f:
        feats, labels = torch.from_numpy(f["features"][:]), torch.from_numpy(f["labels"][:])
    keep = labels < 100 if split == "train" else labels >= 100
    return feats[keep], labels[keep]


class ClassBalancedSampler(Sampler):
    """Batches of n_classes species with n_samples images each."""

    def __init__(self, labels, n_classes, n_samples, n_batches):
        self.by_class = {c: np.flatnonzero(labels.numpy() == c) for c in labels.unique().tolist()}
        self.n_classes, self.n_samples, self.n_batches = n_classes, n_samples, n_batches

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        for _ in range(self.n_batches):
            batch = []
            for c in np.random.choice(list(self.by_class), self.n_classes, replace=False):
                batch.extend(np.random.choice(self.by_class[c], self.n_samples, replace=False).tolist())
            yield batch


class EmbeddingHead(nn.Module):
    def __init__(self, in_dim, hidden, out_dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(in_dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                                 nn.Dropout(0.2), nn.Linear(hidden, out_dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class MultiSimilarityLoss(nn.Module):
    def __init__(self, scale_pos=2.0, scale_neg=40.0, thresh=0.5, margin=0.1):
        super().__init__()
        self.scale_pos = scale_pos
        self.scale_neg = scale_neg
        self.thresh = thresh
        self.margin = margin

    def forward(self, emb, labels):
        sim = emb @ emb.t()
        losses = []
        for i in range(len(labels)):
            pos = sim[i][(labels == labels[i]) & (torch.arange(len(labels)) != i)]
            neg = sim[i][labels != labels[i]]
            # keep the informative pairs only
            hard_neg = neg[neg + self.margin > pos.min()]
            hard_pos = pos[pos - self.margin < neg.max()]
            if len(hard_neg) < 1 or len(hard_pos) < 1:
                continue
            pos_loss = torch.log(1 + torch.exp(-self.scale_pos * (hard_pos - self.thresh)).sum()) / self.scale_pos
            neg_loss = torch.log(1 + torch.exp(self.scale_neg * (hard_neg - self.thresh)).sum()) / self.scale_neg
            losses.append(pos_loss + neg_loss)
        if not losses:
            return sim.sum() * 0.0
        return torch.stack(losses).sum() / len(labels)


@torch.no_grad()
def recall_at_k(model, feats, labels, ks=(1, 2, 4, 8)):
    model.eval()
    emb = torch.cat([model(chunk) for chunk in feats.split(512)])
    sim = emb @ emb.t()
    sim.fill_diagonal_(-2)
    hits = labels[sim.topk(max(ks), dim=1).indices] == labels[:, None]
    return [hits[:, :k].any(1).float().mean().item() for k in ks]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--steps-per-epoch", type=int, default=200)
    parser.add_argument("--classes-per-batch", type=int, default=16)
    parser.add_argument("--images-per-class", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    if not os.path.exists(os.path.join(DATA, "birds.h5")):
        make_data(DATA)

    feats, labels = load_split("train")
    test_feats, test_labels = load_split("test")
    sampler = ClassBalancedSampler(labels, args.classes_per_batch, args.images_per_class, args.steps_per_epoch)
    loader = DataLoader(TensorDataset(feats, labels), batch_sampler=sampler)
    model = EmbeddingHead(feats.shape[1], args.hidden, args.dim)
    criterion = MultiSimilarityLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    print("epoch    loss     R@1     R@2     R@4     R@8")
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        recalls = recall_at_k(model, test_feats, test_labels)
        print("%5d  %6.4f  %s" % (epoch, total / len(loader), "  ".join("%.4f" % r for r in recalls)), flush=True)


if __name__ == "__main__":
    main()
