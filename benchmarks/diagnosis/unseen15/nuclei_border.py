"""
Nuclei segmentation for the histology bench.

v1  plain U-Net, cross entropy
v2  flips + intensity jitter
v3  dice term (asked for by Marta)
v4  EMA weights used for the nightly evaluation
v5  border weights as in Ronneberger et al. 2015, so that touching nuclei are split
"""
import copy
import logging
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage as ndi
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("nuclei")

ROOT = os.path.join(tempfile.gettempdir(), "nuclei_border")
SIZE = 144
N_TRAIN, N_VAL = 80, 8
BATCH = 4
EPOCHS = 80
LR = 2e-3
EMA_DECAY = 0.99
W0, SIGMA = 10.0, 5.0


def draw_tile(rng):
    """One stained tile and its instance label map."""
    yy, xx = np.mgrid[:SIZE, :SIZE]
    label = np.zeros((SIZE, SIZE), np.int32)
    image = rng.normal(0.82, 0.03, (SIZE, SIZE, 3))
    for k in range(1, rng.integers(70, 90)):
        cy, cx = rng.uniform(6, SIZE - 6, 2)
        a, b = rng.uniform(4, 8, 2)
        th = rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
        v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
        inside = ((u / a) ** 2 + (v / b) ** 2 < 1) & (label == 0)
        label[inside] = k
        image[inside] = rng.normal([0.45, 0.3, 0.6], 0.05, (inside.sum(), 3))
    image = ndi.gaussian_filter(image, (1, 1, 0))
    return (np.clip(image, 0, 1) * 255).astype(np.uint8), label


def make_data():
    os.makedirs(ROOT, exist_ok=True)
    path = os.path.join(ROOT, "tiles.npz")
    if not os.path.exists(path):
        rng = np.random.default_rng(11)
        tiles = [draw_tile(rng) for _ in range(N_TRAIN + N_VAL)]
        np.savez(path, images=np.stack([t[0] for t in tiles]), labels=np.stack([t[1] for t in tiles]))
    z = np.load(path)
    return z["images"], z["labels"]


def border_weights(label):
    """w(x) = w0 * exp(-(d1 + d2)^2 / 2 sigma^2), d1 and d2 the distances to the two nearest nuclei."""
    ids = [i for i in np.unique(label) if i > 0]
    if len(ids) < 2:
        return np.ones(label.shape, np.float32)
    dist = np.stack([ndi.distance_transform_edt(label != i) for i in ids])
    dist.sort(axis=0)
    w = W0 * np.exp(-((dist[0] + dist[1]) ** 2) / (2 * SIGMA**2))
    w[label > 0] = 0
    return (1 + w).astype(np.float32)


class Tiles(Dataset):
    def __init__(self, images, labels, train):
        self.images, self.labels = images, labels
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i].astype(np.float32) / 255
        mask = (self.labels[i] > 0).astype(np.int64)
        weight = border_weights(self.labels[i])
        if self.train:
            k = np.random.randint(4)
            image, mask, weight = np.rot90(image, k), np.rot90(mask, k), np.rot90(weight, k)
            if np.random.rand() < 0.5:
                image, mask, weight = image[:, ::-1], mask[:, ::-1], weight[:, ::-1]
            image = image * np.random.uniform(0.9, 1.1, 3).astype(np.float32) + np.float32(np.random.uniform(-0.05, 0.05))
        image = np.ascontiguousarray(image.transpose(2, 0, 1))
        return torch.from_numpy(image), torch.from_numpy(mask.copy()), torch.from_numpy(weight.copy())


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.stem = nn.Conv2d(3, base, 3, stride=2, padding=1)
        self.d1, self.d2, self.d3 = block(base, base), block(base, 2 * base), block(2 * base, 4 * base)
        self.u2, self.u1 = block(6 * base, 2 * base), block(3 * base, base)
        self.head = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        a = self.d1(self.stem(x))
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return F.interpolate(self.head(y), scale_factor=2, mode="bilinear")


def dice_loss(logits, mask):
    p = logits.softmax(1)[:, 1]
    m = mask.float()
    inter = (p * m).sum((1, 2))
    return 1 - ((2 * inter + 1) / (p.sum((1, 2)) + m.sum((1, 2)) + 1)).mean()


@torch.no_grad()
def update_ema(ema, model):
    for e, p in zip(ema.state_dict().values(), model.state_dict().values()):
        if e.dtype.is_floating_point:
            e.lerp_(p, 1 - EMA_DECAY)
        else:
            e.copy_(p)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    inter = union = 0
    for image, mask, _ in loader:
        pred = model(image).argmax(1)
        inter += ((pred == 1) & (mask == 1)).sum().item()
        union += ((pred == 1) | (mask == 1)).sum().item()
    return inter / max(union, 1)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    images, labels = make_data()
    train = Tiles(images[:N_TRAIN], labels[:N_TRAIN], True)
    val = Tiles(images[N_TRAIN:], labels[N_TRAIN:], False)
    loader = DataLoader(train, BATCH, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    val_loader = DataLoader(val, BATCH)

    model = UNet()
    ema = copy.deepcopy(model)
    opt = torch.optim.AdamW(model.parameters(), lr=LR)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, LR, total_steps=EPOCHS * len(loader))
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for image, mask, weight in loader:
            logits = model(image)
            ce = (F.cross_entropy(logits, mask, reduction="none") * weight).mean()
            loss = ce + dice_loss(logits, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            update_ema(ema, model)
            total += loss.item()
            step += 1
        log.info("epoch %d  loss %.4f  (%.2f steps/s)", epoch, total / len(loader), step / (time.time() - t0))
        if epoch % 10 == 9:
            log.info("  val IoU %.4f", evaluate(ema, val_loader))
            torch.save(ema.state_dict(), os.path.join(ROOT, "ema.pt"))


if __name__ == "__main__":
    main()
