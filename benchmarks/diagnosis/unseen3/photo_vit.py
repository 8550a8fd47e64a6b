"""Small transformer on patches of photographs: which of the photos does a patch come from?"""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def photo_patches(path, per_photo=700, px=32):
    if os.path.exists(path):
        with np.load(path) as z:
            return z["x"], z["y"]
    from skimage import data
    rng = np.random.default_rng(0)
    xs, ys = [], []
    for k, name in enumerate(["astronaut", "coffee", "chelsea", "rocket"]):
        img = getattr(data, name)()
        for _ in range(per_photo):
            r, c = rng.integers(0, img.shape[0] - px), rng.integers(0, img.shape[1] - px)
            xs.append(img[r:r + px, c:c + px, :3])
            ys.append(k)
    x, y = np.stack(xs), np.array(ys)
    np.savez(path, x=x, y=y)
    return x, y


class Patches(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        img = self.x[i]
        if np.random.rand() < 0.5:
            img = img[:, ::-1]
        img = img.astype(np.float32) / 127.5 - 1
        return torch.from_numpy(img.transpose(2, 0, 1).copy()), int(self.y[i])


class TinyViT(nn.Module):
    def __init__(self, dim=256, depth=3, heads=4, px=32, patch=4, classes=4):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.pos = nn.Parameter(torch.zeros(1, (px // patch) ** 2, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.encoder(h).mean(1))


def train(opts):
    torch.manual_seed(0)
    x, y = photo_patches(opts.cache)
    loader = DataLoader(Patches(x, y), batch_size=opts.batch, shuffle=True, drop_last=True, num_workers=0)
    net = TinyViT()
    opt = torch.optim.AdamW(net.parameters(), lr=opts.lr, weight_decay=0.05)
    start, seen = time.time(), 0
    for epoch in range(opts.epochs):
        for step, (xb, yb) in enumerate(loader):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = net(xb)
            loss = nn.functional.cross_entropy(logits.float(), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(yb)
            if step % 5 == 0:
                acc = (logits.argmax(1) == yb).float().mean().item()
                print(f"epoch {epoch} [{step}/{len(loader)}] loss {loss.item():.3f} acc {acc:.2f} "
                      f"{seen / (time.time() - start):.1f} img/s", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "photo_patches.npz"))
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=5e-4)
    train(p.parse_args())
