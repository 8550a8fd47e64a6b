# Texture re-identification: learn an embedding where crops of the same
# surface are close to each other.  Code for section 4.2 (batch-hard baseline).
import math
import os
import os.path as osp
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from skimage import data as skdata
from skimage.transform import resize
from torch.utils.data import DataLoader, Dataset, Sampler

ROOT = osp.join(tempfile.gettempdir(), "patch_triplet")
P, K = 24, 4            # identities per batch, crops per identity
CROP = 32
N_ID = 320
DIM = 64
MARGIN = 0.3


def build_surfaces(path, seed=7):
    """Cuts N_ID places out of a few photographs; each place becomes one identity."""
    rng = np.random.default_rng(seed)
    names = ["brick", "grass", "gravel", "camera", "coins", "moon", "text", "clock"]
    photos = [resize(getattr(skdata, n)().astype(np.float32) / 255.0, (512, 512), anti_aliasing=True)
              for n in names]
    out = np.empty((N_ID, 48, 48), np.float32)
    for i in range(N_ID):
        ph = photos[i % len(photos)]
        y, x = rng.integers(0, 512 - 48, 2)
        out[i] = ph[y:y + 48, x:x + 48]
    os.makedirs(osp.dirname(path), exist_ok=True)
    np.save(path + ".tmp.npy", out)
    os.replace(path + ".tmp.npy", path)


class Surfaces(Dataset):
    def __init__(self, arr):
        self.arr = arr

    def __len__(self):
        return len(self.arr) * K

    def __getitem__(self, key):
        ident, seed = key
        rng = np.random.default_rng(seed)
        y, x = rng.integers(0, 48 - CROP, 2)
        img = self.arr[ident, y:y + CROP, x:x + CROP]
        img = img * rng.uniform(0.8, 1.2) + rng.normal(0, 0.05, img.shape).astype(np.float32)
        if rng.random() < 0.5:
            img = img[:, ::-1]
        return np.ascontiguousarray(img, dtype=np.float32)[None], ident


class PKSampler(Sampler):
    def __init__(self, n_id, batches, seed=0):
        self.n_id, self.batches = n_id, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            ids = self.rng.choice(self.n_id, P, replace=False)
            yield [(int(i), int(self.rng.integers(1 << 31))) for i in ids for _ in range(K)]


def block(i, o, s):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(block(1, 24, 1), block(24, 48, 2), block(48, 48, 1),
                                   block(48, 96, 2), block(96, 128, 2))
        self.proj = nn.Linear(128, DIM)

    def forward(self, x):
        h = self.trunk(x).mean(dim=(2, 3))
        return nn.functional.normalize(self.proj(h), dim=1)


class BatchHardTriplet(nn.Module):
    """Hermans et al. 2017, eq. 5, with the soft margin replaced by a hinge."""

    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, z, y):
        n = z.size(0)
        losses = []
        for a in range(n):
            same, other = [], []
            d_a = ((z - z[a]).pow(2).sum(1) + 1e-6).sqrt()
            for j in range(n):
                if j == a:
                    continue
                if y[j] == y[a]:
                    same.append(d_a[j])
                else:
                    other.append(d_a[j])
            hardest_pos = torch.stack(same).max()
            hardest_neg = torch.stack(other).min()
            losses.append(torch.relu(hardest_pos - hardest_neg + self.margin))
        return torch.stack(losses).mean()


@torch.no_grad()
def recall_at_1(net, arr, seed):
    net.eval()
    ds = Surfaces(arr)
    xs = [np.stack([ds[(i, seed + 1000 * r + i)][0] for i in range(0, N_ID, 2)]) for r in range(2)]
    q, g = (net(torch.from_numpy(x)) for x in xs)
    net.train()
    hit = torch.cdist(q, g).argmin(1) == torch.arange(len(q))
    return hit.float().mean().item()


def lr_at(it, base=1e-3, total=20000):
    return base * 0.5 * (1 + math.cos(math.pi * min(it / total, 1.0)))


def main():
    torch.manual_seed(3)
    np.random.seed(3)
    path = osp.join(ROOT, "surfaces.npy")
    if not osp.exists(path):
        build_surfaces(path)
    arr = np.load(path)
    loader = DataLoader(Surfaces(arr), batch_sampler=PKSampler(N_ID, 150), num_workers=0)
    net = EmbeddingNet()
    crit = BatchHardTriplet(MARGIN)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)

    it, tic, seen = 0, time.time(), 0
    for ep in range(200):
        for x, y in loader:
            for gr in opt.param_groups:
                gr["lr"] = lr_at(it)
            z = net(x)
            loss = crit(z, y)
            opt.zero_grad(set_to_none=False)
            loss.backward()
            opt.step()
            it += 1
            seen += len(x)
            if it % 20 == 0:
                print(f"[{ep:03d}/{it:05d}] loss={loss.item():.4f} {seen / (time.time() - tic):.1f} img/s", flush=True)
        print(f"      R@1 = {recall_at_1(net, arr, ep):.3f}", flush=True)


if __name__ == "__main__":
    main()
