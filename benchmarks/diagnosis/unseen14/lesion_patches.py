"""Patch-based 3D segmentation of lesions in NIfTI volumes."""
import json
import os
import tempfile
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "data_dir": Path(tempfile.gettempdir()) / "lesion_patches",
    "n_cases": 4,
    "shape": (256, 256, 144),
    "patch": (20, 20, 20),
    "patches_per_case": 200,
    "pos_fraction": 0.5,
    "batch_size": 4,
    "channels": (4, 8, 16),
    "lr": 3e-3,
    "seconds": 80.0,
    "log_every": 10,
    "seed": 11,
}


def synthesise_case(rng, shape):
    coarse = torch.from_numpy(rng.normal(0, 1, tuple(s // 16 for s in shape)).astype(np.float32))
    image = F.interpolate(coarse[None, None], size=shape, mode="trilinear")[0, 0].numpy() * 120 + 600
    image += rng.integers(-40, 40, shape, dtype=np.int16)
    label = np.zeros(shape, np.uint8)
    centers = []
    for _ in range(12):
        r = int(rng.integers(4, 9))
        c = [int(rng.integers(r, s - r)) for s in shape]
        box = tuple(slice(x - r, x + r) for x in c)
        g = np.mgrid[-r:r, -r:r, -r:r]
        ball = (g ** 2).sum(0) < r * r
        label[box][ball] = 1
        image[box][ball] += 150
        centers.append(c)
    return image.astype(np.int16), label, centers


def prepare_dataset(cfg):
    root = cfg["data_dir"]
    index = root / "dataset.json"
    if not index.exists():
        root.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(cfg["seed"])
        affine, cases = np.diag([1.0, 1.0, 1.2, 1.0]), []
        for i in range(cfg["n_cases"]):
            image, label, centers = synthesise_case(rng, cfg["shape"])
            nib.save(nib.Nifti1Image(image, affine), root / f"case_{i:03d}_image.nii")
            nib.save(nib.Nifti1Image(label, affine), root / f"case_{i:03d}_label.nii")
            cases.append({"image": f"case_{i:03d}_image.nii", "label": f"case_{i:03d}_label.nii",
                          "lesions": centers, "mean": float(image.mean()), "std": float(image.std())})
        index.write_text(json.dumps({"training": cases}))
    return json.loads(index.read_text())["training"]


class PatchDataset(Dataset):
    """Random patches; a fraction of them is centred on a lesion."""

    def __init__(self, cases, cfg):
        self.cases = cases
        self.cfg = cfg

    def __len__(self):
        return len(self.cases) * self.cfg["patches_per_case"]

    def sample_origin(self, case, shape):
        patch = self.cfg["patch"]
        if torch.rand(()).item() < self.cfg["pos_fraction"]:
            center = case["lesions"][int(torch.randint(len(case["lesions"]), ()))]
            return [min(max(c - p // 2, 0), s - p) for c, p, s in zip(center, patch, shape)]
        return [int(torch.randint(s - p + 1, ())) for s, p in zip(shape, patch)]

    def __getitem__(self, i):
        case = self.cases[i % len(self.cases)]
        image = nib.load(self.cfg["data_dir"] / case["image"])
        label = nib.load(self.cfg["data_dir"] / case["label"])
        origin = self.sample_origin(case, image.shape)
        roi = tuple(slice(o, o + p) for o, p in zip(origin, self.cfg["patch"]))
        x = image.get_fdata(dtype=np.float32)[roi]
        y = label.get_fdata(dtype=np.float32)[roi]
        x = (np.ascontiguousarray(x) - case["mean"]) / case["std"]
        for axis in range(3):
            if torch.rand(()).item() < 0.5:
                x, y = np.flip(x, axis), np.flip(y, axis)
        return torch.from_numpy(x.astype(np.float32))[None], torch.from_numpy(np.ascontiguousarray(y))[None]


def conv_block(i, o):
    return nn.Sequential(nn.Conv3d(i, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True),
                         nn.LeakyReLU(0.01, inplace=True))


class UNet3D(nn.Module):
    def __init__(self, channels):
        super().__init__()
        c0, c1, c2 = channels
        self.enc0 = conv_block(1, c0)
        self.down0 = nn.Conv3d(c0, c1, 2, stride=2)
        self.enc1 = conv_block(c1, c1)
        self.down1 = nn.Conv3d(c1, c2, 2, stride=2)
        self.mid = nn.Sequential(conv_block(c2, c2), conv_block(c2, c2))
        self.up1 = nn.ConvTranspose3d(c2, c1, 2, stride=2)
        self.dec1 = conv_block(2 * c1, c1)
        self.up0 = nn.ConvTranspose3d(c1, c0, 2, stride=2)
        self.dec0 = conv_block(2 * c0, c0)
        self.head = nn.Conv3d(c0, 1, 1)

    def forward(self, x):
        s0 = self.enc0(x)
        s1 = self.enc1(self.down0(s0))
        z = self.mid(self.down1(s1))
        z = self.dec1(torch.cat([self.up1(z), s1], 1))
        z = self.dec0(torch.cat([self.up0(z), s0], 1))
        return self.head(z)


def dice_ce_loss(logits, target):
    ce = F.binary_cross_entropy_with_logits(logits, target)
    p = logits.sigmoid()
    inter = (p * target).sum((2, 3, 4))
    dice = (2 * inter + 1.0) / (p.sum((2, 3, 4)) + target.sum((2, 3, 4)) + 1.0)
    return ce + 1 - dice.mean()


def main(cfg):
    torch.manual_seed(cfg["seed"])
    dataset = PatchDataset(prepare_dataset(cfg), cfg)
    loader = DataLoader(dataset, batch_size=cfg["batch_size"], shuffle=True, num_workers=2,
                        persistent_workers=True, prefetch_factor=4)
    model = UNet3D(cfg["channels"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], fused=True)
    step, start, running = 0, time.time(), torch.zeros(())
    epoch = 0
    while True:
        for x, y in loader:
            loss = dice_ce_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            step += 1
            if step % cfg["log_every"] == 0:
                print(f"[epoch {epoch}] iter {step} loss {running.item() / cfg['log_every']:.4f} "
                      f"{step * cfg['batch_size'] / (time.time() - start):.1f} patches/s", flush=True)
                running.zero_()
            if time.time() - start > cfg["seconds"]:
                print(f"done: {step} steps", flush=True)
                return
        epoch += 1


if __name__ == "__main__":
    main(CONFIG)
