"""
Land cover segmentation from a few satellite scenes.

Each scene is a 4 band GeoTIFF-like tiff (R, G, B, NIR, uint16) with a label tiff of
the same size. We train a small U-Net on random patches.

    python landcover.py --epochs 10
"""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import tifffile
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader, Dataset

CLASSES = ["water", "forest", "crop", "urban", "bare"]
DATA = Path(tempfile.gettempdir()) / "landcover"


def make_scenes(n_scenes=6, size=960):
    DATA.mkdir(parents=True, exist_ok=True)
    signature = np.array([[300, 450, 600, 150], [350, 600, 300, 3200], [700, 1100, 800, 2600],
                          [1500, 1500, 1450, 1900], [2200, 1900, 1500, 2400]], dtype=np.float32)
    for s in range(n_scenes):
        if (DATA / f"scene_{s:02d}_label.tif").exists():
            continue
        rng = np.random.default_rng(100 + s)
        fields = []
        for _ in CLASSES:
            coarse = gaussian_filter(rng.normal(size=(size // 8, size // 8)), 3)
            fields.append(np.kron(coarse, np.ones((8, 8))))
        label = np.argmax(fields, axis=0).astype(np.uint8)
        image = signature[label] + rng.normal(0, 250, (size, size, 4)).astype(np.float32)
        image = np.clip(image * rng.uniform(0.8, 1.2), 0, 10000).astype(np.uint16)
        tifffile.imwrite(DATA / f"scene_{s:02d}.tif", image, compression="zlib", tile=(192, 192), photometric="rgb")
        tifffile.imwrite(DATA / f"scene_{s:02d}_label.tif", label)


class PatchDataset(Dataset):
    def __init__(self, scenes, patch=64, patches_per_scene=250):
        self.scenes = scenes
        self.patch = patch
        self.per_scene = patches_per_scene

    def __len__(self):
        return len(self.scenes) * self.per_scene

    def __getitem__(self, i):
        path = self.scenes[i // self.per_scene]
        image = tifffile.imread(path)
        label = tifffile.imread(path.with_name(path.stem + "_label.tif"))

        h, w = label.shape
        y = np.random.randint(0, h - self.patch)
        x = np.random.randint(0, w - self.patch)
        image = image[y:y + self.patch, x:x + self.patch].astype(np.float32) / 10000.0
        label = label[y:y + self.patch, x:x + self.patch].astype(np.int64)

        # NDVI as a fifth channel
        red, nir = image[..., 0], image[..., 3]
        ndvi = (nir - red) / (nir + red + 1e-6)
        image = np.concatenate([image, ndvi[..., None]], axis=-1)

        if np.random.rand() < 0.5:
            image, label = image[:, ::-1], label[:, ::-1]
        if np.random.rand() < 0.5:
            image, label = image[::-1], label[::-1]
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), torch.from_numpy(label.copy())


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, bands, classes, width=10):
        super().__init__()
        self.down1 = block(bands, width)
        self.down2 = block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(F.max_pool2d(d1, 2))
        b = self.bottom(F.max_pool2d(d2, 2))
        u2 = self.dec2(torch.cat([self.up2(b), d2], dim=1))
        u1 = self.dec1(torch.cat([self.up1(u2), d1], dim=1))
        return self.head(u1)


def mean_iou(confusion):
    inter = confusion.diag()
    union = confusion.sum(0) + confusion.sum(1) - inter
    return (inter / union.clamp(min=1)).mean().item()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--patch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--cpus", type=int, default=1)
    args = ap.parse_args()

    make_scenes()
    scenes = sorted(p for p in DATA.glob("scene_*.tif") if "label" not in p.name)
    train_set = PatchDataset(scenes[:-1], args.patch)
    val_set = PatchDataset(scenes[-1:], args.patch, patches_per_scene=24)
    train_dl = DataLoader(train_set, batch_size=args.batch, shuffle=True, drop_last=True)
    val_dl = DataLoader(val_set, batch_size=args.batch)

    net = UNet(bands=5, classes=len(CLASSES))
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train_dl))

    for epoch in range(args.epochs):
        net.train()
        for step, (img, lab) in enumerate(train_dl):
            loss = F.cross_entropy(net(img), lab)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"[{epoch:02d}/{args.epochs}] {step:4d}/{len(train_dl)} loss={loss.item():.4f} "
                      f"lr={sched.get_last_lr()[0]:.2e}", flush=True)

        net.eval()
        confusion = torch.zeros(len(CLASSES), len(CLASSES))
        with torch.no_grad():
            for img, lab in val_dl:
                pred = net(img).argmax(1)
                confusion += torch.bincount(lab.flatten() * len(CLASSES) + pred.flatten(),
                                            minlength=len(CLASSES) ** 2).view_as(confusion)
        print(f"[{epoch:02d}/{args.epochs}] val mIoU {mean_iou(confusion):.3f}", flush=True)


if __name__ == "__main__":
    main()
