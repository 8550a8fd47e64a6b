"""Classify transient cutouts (real supernova in a host / variable nucleus / subtraction artefact).

Cutouts are triplets (science, template, difference) of 63 x 63 pixels in FITS
order, stored as one npy file per night.
"""
import glob
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "supernova_hosts")
NPIX = 63
CLASSES = ("supernova", "nucleus", "artefact")


def gaussian(x, y, x0, y0, sigma, q=1.0, angle=0.0):
    dx, dy = x - x0, y - y0
    u = dx * np.cos(angle) + dy * np.sin(angle)
    v = -dx * np.sin(angle) + dy * np.cos(angle)
    return np.exp(-0.5 * (u ** 2 + (v / q) ** 2) / sigma ** 2)


def make_night(rng, n):
    y, x = np.mgrid[:NPIX, :NPIX] - NPIX // 2
    cutouts = np.empty((n, 3, NPIX, NPIX), dtype=">f4")
    labels = rng.integers(0, 3, n)
    for i, k in enumerate(labels):
        sigma, q, angle = rng.uniform(2.5, 7), rng.uniform(0.3, 1), rng.uniform(0, np.pi)
        hx, hy = rng.normal(0, 5, 2) if k == 0 else rng.normal(0, 0.7, 2)
        host = rng.uniform(40, 250) * gaussian(x, y, hx, hy, sigma, q, angle)
        seeing = rng.uniform(1.2, 2.0)
        flux = rng.uniform(15, 120)
        if k == 2:
            shift = rng.uniform(0.3, 1.2, 2) * rng.choice([-1, 1], 2)
            star = 6 * flux * gaussian(x, y, 0, 0, seeing)
            change = 6 * flux * gaussian(x, y, *shift, seeing) - star
            host = host * 0.5 + star
        else:
            change = flux * gaussian(x, y, 0, 0, seeing)
        sky = rng.uniform(80, 200)
        science = rng.poisson(np.clip(host + change, 0, None) + sky) - sky
        template = rng.poisson(host + sky / 4) - sky / 4
        cutouts[i] = science, template, science - template
    return cutouts, labels


def make_data(nights=24, per_night=150):
    os.makedirs(ROOT, exist_ok=True)
    rng = np.random.default_rng(21)
    for night in range(nights):
        cutouts, labels = make_night(rng, per_night)
        np.save(os.path.join(ROOT, f"night{night:03d}_labels.npy"), labels)
        np.save(os.path.join(ROOT, f"night{night:03d}_cutouts.npy"), cutouts)
    open(os.path.join(ROOT, "complete"), "w").close()


class Cutouts(Dataset):
    def __init__(self, files, augment):
        self.cutouts = np.concatenate([np.load(f) for f in files])
        self.labels = np.concatenate([np.load(f.replace("cutouts", "labels")) for f in files])
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.cutouts[i].astype(np.float32)
        if self.augment:
            # the sky has no up and down
            image = ndimage.rotate(image, np.random.uniform(0, 360), axes=(1, 2), reshape=False, mode="reflect")
            if np.random.rand() < 0.5:
                image = image[:, :, ::-1]
            dy, dx = np.random.uniform(-1.5, 1.5, 2)
            image = ndimage.shift(image, (0, dy, dx), mode="nearest")
        # robust scaling of each plane by its median absolute deviation
        median = np.median(image, axis=(1, 2), keepdims=True)
        mad = np.median(np.abs(image - median), axis=(1, 2), keepdims=True)
        image = np.arcsinh((image - median) / (1.4826 * mad + 1e-3) / 3)
        return torch.from_numpy(image.astype(np.float32)), int(self.labels[i])


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


def main():
    if not os.path.exists(os.path.join(ROOT, "complete")):
        make_data()
    torch.manual_seed(2)
    np.random.seed(2)
    files = sorted(glob.glob(os.path.join(ROOT, "*_cutouts.npy")))
    train = DataLoader(Cutouts(files[:-4], augment=True), batch_size=64, shuffle=True, drop_last=True)
    test = DataLoader(Cutouts(files[-4:], augment=False), batch_size=100)

    model = nn.Sequential(conv_block(3, 12), conv_block(12, 24), conv_block(24, 48), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Dropout(0.3), nn.Linear(48, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(60):
        model.train()
        losses = []
        for step, (image, label) in enumerate(train):
            optimizer.zero_grad()
            loss = criterion(model(image), label)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-10:]):.4f}", flush=True)

        model.eval()
        confusion = np.zeros((3, 3), dtype=int)
        with torch.no_grad():
            for image, label in test:
                np.add.at(confusion, (label.numpy(), model(image).argmax(1).numpy()), 1)
        recall = confusion.diagonal() / confusion.sum(1)
        print(f"epoch {epoch} recall", dict(zip(CLASSES, recall.round(3))), flush=True)


if __name__ == "__main__":
    main()
