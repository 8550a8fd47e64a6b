"""Roof segmentation on 4-band satellite chips. U-Net, BCE + Dice, EMA weights, IoU on a held-out city."""
import copy
import os
import random
import tempfile
import time

import numpy as np
import pandas as pd
import tifffile
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader, Dataset


class CFG:
    root = os.path.join(tempfile.gettempdir(), "satellite_roofs_aa")
    n_chips = 400
    chip = 192
    crop = 160
    width = 16
    batch_size = 8
    accum = 2
    epochs = 20
    lr = 1e-3
    ema_decay = 0.99
    num_workers = 1
    seed = 77


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class AverageMeter:
    def __init__(self):
        self.s = self.n = 0

    def add(self, v, n):
        self.s += v * n
        self.n += n

    def __float__(self):
        return self.s / max(self.n, 1)


# -------------------------------------------------- chips
def make_chip(rng):
    n = CFG.chip
    ground = gaussian_filter(rng.normal(0, 1, (n, n, 4)), (6, 6, 0)) * 6000 + rng.uniform(1500, 4000, 4)
    mask = np.zeros((n, n), np.uint8)
    yy, xx = np.mgrid[:n, :n]
    for _ in range(rng.integers(6, 22)):
        cy, cx, h, w, a = rng.uniform(0, n), rng.uniform(0, n), rng.uniform(5, 16), rng.uniform(5, 20), rng.uniform(0, 3)
        u = (xx - cx) * np.cos(a) + (yy - cy) * np.sin(a)
        v = -(xx - cx) * np.sin(a) + (yy - cy) * np.cos(a)
        roof = (np.abs(u) < w) & (np.abs(v) < h)
        ground[roof] = rng.uniform(2500, 7000, 4)
        ground[roof & (v > 0)] *= 0.85
        mask[roof] = 255
    ground = ground + rng.normal(0, 250, ground.shape)
    return ground.clip(0, 11000).astype(np.uint16), mask


def prepare():
    csv = os.path.join(CFG.root, "chips.csv")
    if not os.path.exists(csv):
        os.makedirs(os.path.join(CFG.root, "images"), exist_ok=True)
        os.makedirs(os.path.join(CFG.root, "masks"), exist_ok=True)
        rng = np.random.default_rng(5)
        rows = []
        for i in range(CFG.n_chips):
            img, mask = make_chip(rng)
            tifffile.imwrite(os.path.join(CFG.root, "images", f"{i:04d}.tif"), img, photometric="minisblack",
                             planarconfig="contig")
            Image.fromarray(mask).save(os.path.join(CFG.root, "masks", f"{i:04d}.png"))
            rows.append({"chip": f"{i:04d}", "city": ["vegas", "paris", "shanghai", "khartoum"][i % 4]})
        pd.DataFrame(rows).to_csv(csv, index=False)
    return pd.read_csv(csv, dtype={"chip": str})


class RoofDataset(Dataset):
    def __init__(self, chips, train):
        self.chips = list(chips)
        self.train = train

    def __len__(self):
        return len(self.chips)

    def __getitem__(self, i):
        img = tifffile.imread(os.path.join(CFG.root, "images", self.chips[i] + ".tif")).astype(np.float32)
        mask = np.array(Image.open(os.path.join(CFG.root, "masks", self.chips[i] + ".png"))) > 127
        img = (img - 3000) / 2000
        off = CFG.chip - CFG.crop
        y, x = (random.randint(0, off), random.randint(0, off)) if self.train else (off // 2, off // 2)
        img, mask = img[y:y + CFG.crop, x:x + CFG.crop], mask[y:y + CFG.crop, x:x + CFG.crop]
        if self.train:
            k = random.randint(0, 3)
            img, mask = np.rot90(img, k), np.rot90(mask, k)
            if random.random() < 0.5:
                img, mask = img[:, ::-1], mask[:, ::-1]
            img = img * random.uniform(0.85, 1.15) + random.uniform(-0.1, 0.1)
        img = np.ascontiguousarray(img.transpose(2, 0, 1), dtype=np.float32)
        return torch.from_numpy(img), torch.from_numpy(mask[None].astype(np.float32))


# -------------------------------------------------- model
def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.d1, self.d2, self.d3 = double_conv(4, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.mid = double_conv(4 * w, 8 * w)
        self.up3, self.c3 = nn.ConvTranspose2d(8 * w, 4 * w, 2, 2), double_conv(8 * w, 4 * w)
        self.up2, self.c2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), double_conv(4 * w, 2 * w)
        self.up1, self.c1 = nn.ConvTranspose2d(2 * w, w, 2, 2), double_conv(2 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        x = self.mid(F.max_pool2d(c, 2))
        x = self.c3(torch.cat([self.up3(x), c], 1))
        x = self.c2(torch.cat([self.up2(x), b], 1))
        x = self.c1(torch.cat([self.up1(x), a], 1))
        return self.head(x)


def criterion(logits, y):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * y).sum((2, 3)) + 1) / (p.sum((2, 3)) + y.sum((2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, y) + dice.mean()


@torch.no_grad()
def ema_update(ema, model):
    for e, p in zip(ema.state_dict().values(), model.state_dict().values()):
        if e.dtype.is_floating_point:
            e.lerp_(p, 1 - CFG.ema_decay)
        else:
            e.copy_(p)


@torch.no_grad()
def iou(model, loader):
    model.eval()
    inter = union = 0
    for x, y in loader:
        p = model(x) > 0
        inter += (p & (y > 0)).sum().item()
        union += (p | (y > 0)).sum().item()
    return inter / union


def main():
    seed_everything(CFG.seed)
    df = prepare()
    trn, val = df[df.city != "khartoum"], df[df.city == "khartoum"]
    train_dl = DataLoader(RoofDataset(trn.chip, True), CFG.batch_size, shuffle=True, drop_last=True,
                          num_workers=CFG.num_workers, persistent_workers=True)
    val_dl = DataLoader(RoofDataset(val.chip, False), CFG.batch_size, num_workers=CFG.num_workers)
    model = UNet(CFG.width)
    ema = copy.deepcopy(model)
    opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, CFG.epochs * len(train_dl) // CFG.accum)
    best = 0
    for epoch in range(CFG.epochs):
        model.train()
        loss_m, t0 = AverageMeter(), time.time()
        for step, (x, y) in enumerate(train_dl, 1):
            loss = criterion(model(x), y)
            (loss / CFG.accum).backward()
            if step % CFG.accum == 0:
                opt.step()
                opt.zero_grad()
                sched.step()
                ema_update(ema, model)
            loss_m.add(loss.item(), len(x))
            if step % 10 == 0:
                print(f"[{epoch}] {step}/{len(train_dl)} loss {float(loss_m):.4f} {(time.time() - t0) / step:.2f} s/it",
                      flush=True)
        score = iou(ema, val_dl)
        print(f"[{epoch}] loss {float(loss_m):.4f} IoU {score:.4f}", flush=True)
        if score > best:
            best = score
            torch.save(ema.state_dict(), os.path.join(CFG.root, "unet_ema.pth"))
    print("best IoU", best)


if __name__ == "__main__":
    main()
