# %% [markdown]
# # Beetle trap classifier
# Frozen-backbone features of pitfall trap photos -> species (long tail, 320 species).

# %%
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CFG:
    seed = 42
    n_species = 320
    n_train = 40_000
    feat_dim = 384
    hidden = 1024
    bs = 128
    lr = 2e-3
    epochs = 30
    print_every = 100
    mixup = 0.2
    root = os.path.join(tempfile.gettempdir(), "beetle_traps")


torch.manual_seed(CFG.seed)
np.random.seed(CFG.seed)


# %%
def make_features():
    path = os.path.join(CFG.root, "feats.npz")
    if not os.path.exists(path):
        os.makedirs(CFG.root, exist_ok=True)
        rng = np.random.default_rng(CFG.seed)
        # Zipf-like abundance, as in every trap I have ever emptied
        p = 1 / np.arange(1, CFG.n_species + 1) ** 0.8
        y = rng.choice(CFG.n_species, CFG.n_train, p=p / p.sum())
        centers = rng.standard_normal((CFG.n_species, CFG.feat_dim)).astype(np.float32)
        x = centers[y] + 2.5 * rng.standard_normal((CFG.n_train, CFG.feat_dim)).astype(np.float32)
        np.savez(path, x=x, y=y)
    d = np.load(path)
    return torch.from_numpy(d["x"]), torch.from_numpy(d["y"]).long()


x, y = make_features()
print(x.shape, y.bincount()[:5].tolist(), "...")
g = torch.Generator().manual_seed(1)
perm = torch.randperm(len(x), generator=g)
tr, va = perm[:-2000], perm[-2000:]


# %%
class ArrayLoader:
    """TensorDataset + DataLoader collates row by row, indexing whole batches is enough here."""

    def __init__(self, x, y, bs, shuffle=True):
        self.x, self.y, self.bs, self.shuffle = x, y, bs, shuffle

    def __len__(self):
        return len(self.x) // self.bs

    def __iter__(self):
        order = torch.randperm(len(self.x)) if self.shuffle else torch.arange(len(self.x))
        for i in range(len(self)):
            j = order[i * self.bs:(i + 1) * self.bs]
            yield self.x[j], self.y[j]


train_dl = ArrayLoader(x[tr], y[tr], CFG.bs)
valid_dl = ArrayLoader(x[va], y[va], 500, shuffle=False)


# %%
class SpeciesConfusion:
    """Running confusion matrix. Genus mates get mixed up a lot, we want to see who."""

    def __init__(self, n):
        self.n = n
        self.ids = torch.arange(n)
        self.reset()

    def reset(self):
        self.cm = torch.zeros(self.n, self.n)

    def update(self, pred, target):
        cm = ((pred == self.ids[:, None]) & (target == self.ids[:, None, None])).sum(2).float()
        self.cm += cm

    def accuracy(self):
        return (self.cm.diag().sum() / self.cm.sum()).item()

    def macro_recall(self):
        seen = self.cm.sum(1) > 0
        return (self.cm.diag()[seen] / self.cm.sum(1)[seen]).mean().item()

    def worst_pairs(self, k=3):
        off = self.cm - torch.diag(self.cm.diag())
        v, i = off.flatten().topk(k)
        return [(int(j) // self.n, int(j) % self.n, int(c)) for j, c in zip(i, v)]


# %%
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(CFG.feat_dim),
            nn.Linear(CFG.feat_dim, CFG.hidden), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(CFG.hidden, CFG.hidden), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(CFG.hidden, CFG.n_species),
        )

    def forward(self, x):
        return self.net(x)


model = Head()
opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG.lr, total_steps=CFG.epochs * len(train_dl))
prior = y[tr].bincount(minlength=CFG.n_species).float().add(1).log()
prior = prior - prior.logsumexp(0)
train_cm, valid_cm = SpeciesConfusion(CFG.n_species), SpeciesConfusion(CFG.n_species)


# %%
def validate():
    model.eval()
    valid_cm.reset()
    with torch.no_grad():
        for xb, yb in valid_dl:
            valid_cm.update(model(xb).argmax(1), yb)
    model.train()
    return valid_cm.macro_recall()


best, step, t0 = 0.0, 0, time.time()
for epoch in range(CFG.epochs):
    train_cm.reset()
    for xb, yb in train_dl:
        lam = np.random.beta(CFG.mixup, CFG.mixup)
        lam = max(lam, 1 - lam)
        xm = lam * xb + (1 - lam) * xb.flip(0)
        out = model(xm)
        # logit adjustment for the long tail
        adj = out + prior
        loss = lam * F.cross_entropy(adj, yb) + (1 - lam) * F.cross_entropy(adj, yb.flip(0))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        train_cm.update(out.detach().argmax(1), yb)
        step += 1
        if step % CFG.print_every == 0:
            print(f"ep {epoch} step {step} loss {loss.item():.3f} acc {train_cm.accuracy():.3f} "
                  f"{step / (time.time() - t0):.1f} it/s", flush=True)
    score = validate()
    print(f"== epoch {epoch}: train recall {train_cm.macro_recall():.3f} valid recall {score:.3f} "
          f"mixed up {train_cm.worst_pairs()}", flush=True)
    if score > best:
        best = score
        torch.save(model.state_dict(), os.path.join(CFG.root, "best.pt"))
print("best", best)
