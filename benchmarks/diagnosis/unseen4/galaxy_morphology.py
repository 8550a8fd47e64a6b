"""Galaxy morphology regression with Accelerate.

Cutouts are small, so the whole catalogue is held in memory as uint8 and the
random flips / rotations are applied to the batch while collating.
"""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

SIDE = 48


def render_catalogue(n, seed):
    """Tilted Sersic-like blobs; targets are axis ratio, log radius, concentration."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) - SIDE / 2
    images = np.empty((n, 3, SIDE, SIDE), np.uint8)
    q, r, c = rng.uniform(0.3, 1, n), rng.uniform(2, 9, n), rng.uniform(0.6, 2.0, n)
    theta = rng.uniform(0, np.pi, n)
    for i in range(n):
        u = x * np.cos(theta[i]) + y * np.sin(theta[i])
        v = (-x * np.sin(theta[i]) + y * np.cos(theta[i])) / q[i]
        profile = np.exp(-((np.hypot(u, v) / r[i]) ** c[i]))
        for band, gain in enumerate((0.7, 0.9, 1.0)):
            noisy = 200 * gain * profile + rng.normal(12, 6, profile.shape)
            images[i, band] = noisy.clip(0, 255)
    targets = np.stack([q, np.log(r), c], 1).astype(np.float32)
    return images, (targets - [0.65, 1.6, 1.3]).astype(np.float32)


class Catalogue(Dataset):
    def __init__(self, n, seed):
        images, targets = render_catalogue(n, seed)
        self.images, self.targets = torch.from_numpy(images), torch.from_numpy(targets)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.targets[i]


def collate(items):
    images = torch.stack([im for im, _ in items]).float().div_(127.5).sub_(1)
    targets = torch.stack([t for _, t in items])
    if torch.rand(()) < 0.5:
        images = images.flip(-1)
    images = torch.rot90(images, int(torch.randint(0, 4, ())), (2, 3))
    return images.contiguous(memory_format=torch.channels_last), targets


class MorphNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        stages, cin = [], 3
        for mult, stride in ((1, 2), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            cout = width * mult
            stages += [nn.Conv2d(cin, cout, 3, stride, 1), nn.ReLU(inplace=True)]
            cin = cout
        self.trunk = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.Linear(cin, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x):
        return self.head(self.trunk(x).mean((2, 3)))


def evaluate(model, loader):
    model.eval()
    with torch.inference_mode():
        errors = torch.cat([(model(x) - y).abs() for x, y in loader])
    model.train()
    return errors.mean(0).tolist()


def main(epochs=300, batch_size=64, lr=1e-3, val_every=20):
    torch.manual_seed(9)
    accelerator = Accelerator(cpu=True)
    train_set, val_set = Catalogue(2560, 0), Catalogue(4000, 1)
    train_loader = DataLoader(train_set, batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    val_loader = DataLoader(val_set, 200, collate_fn=collate)
    model = MorphNet().to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
    model, opt, train_loader, val_loader = accelerator.prepare(model, opt, train_loader, val_loader)
    out = os.path.join(tempfile.mkdtemp(prefix="galaxy_"), "best.pt")
    best, start = float("inf"), time.time()

    for epoch in range(1, epochs + 1):
        total = torch.zeros(())
        for images, targets in train_loader:
            loss = nn.functional.smooth_l1_loss(model(images), targets)
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
            total += loss.detach()
        accelerator.print(f"epoch {epoch} loss {total.item() / len(train_loader):.5f} "
                          f"{time.time() - start:.0f}s", flush=True)
        if epoch % val_every == 0:
            mae = evaluate(model, val_loader)
            accelerator.print("  val MAE " + " ".join(f"{m:.4f}" for m in mae), flush=True)
            if sum(mae) < best:
                best = sum(mae)
                torch.save(accelerator.unwrap_model(model).state_dict(), out)


if __name__ == "__main__":
    main()
