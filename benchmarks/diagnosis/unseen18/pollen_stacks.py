"""Pollen grains from fluorescence microscopy: genus classification from TIFF focus stacks.

Each TIFF holds three focal planes, which are used as the three channels of an
image network.  The network was trained by the group on unlabelled slides
(here: its weights lie next to the data); only a new head is trained on the
labelled grains.
"""
import os
import tempfile

import numpy as np
import pandas as pd
import tifffile
import timm
import torch
import torch.nn as nn
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "pollen_stacks")
GENERA = ["Alnus", "Betula", "Corylus", "Fraxinus", "Pinus", "Quercus", "Salix", "Tilia"]
SIZE = 96


def draw_grain(rng, k):
    """Outline with k-dependent lobes and pores, seen at three focal planes."""
    y, x = np.mgrid[-1:1:SIZE * 1j, -1:1:SIZE * 1j]
    angle = np.arctan2(y, x) + rng.uniform(0, 2 * np.pi)
    radius = np.hypot(x - rng.uniform(-0.1, 0.1), y - rng.uniform(-0.1, 0.1))
    size = rng.uniform(0.45, 0.7)
    edge = size * (1 + (0.04 + 0.02 * (k % 3)) * np.cos((2 + k // 2) * angle))
    wall = np.exp(-((radius - edge) / (0.03 + 0.01 * (k % 4))) ** 2)
    texture = gaussian_filter(rng.normal(size=(SIZE, SIZE)), 1 + 0.4 * k)
    body = (radius < edge) * (0.4 + 0.3 * texture / texture.std())
    planes = [gaussian_filter(wall + body, s) for s in (0.7, 1.5, 3.0)]
    image = np.stack(planes) * 9000 + 2000
    return np.clip(rng.poisson(np.clip(image, 0, None) / 20) * 20, 0, 65535).astype(np.uint16)


def make_data(n=1500):
    os.makedirs(os.path.join(ROOT, "stacks"), exist_ok=True)
    rng = np.random.default_rng(11)
    rows = []
    for i in range(n):
        k = int(rng.integers(len(GENERA)))
        path = f"stacks/grain_{i:04d}.tif"
        tifffile.imwrite(os.path.join(ROOT, path), draw_grain(rng, k), photometric="minisblack")
        rows.append((path, GENERA[k], i % 5 == 0))
    torch.manual_seed(3)
    encoder = timm.create_model("resnet18", pretrained=False, num_classes=0)
    torch.save(encoder.state_dict(), os.path.join(ROOT, "encoder.pt"))
    pd.DataFrame(rows, columns=["path", "genus", "heldout"]).to_csv(os.path.join(ROOT, "grains.csv"), index=False)


class Grains(Dataset):
    def __init__(self, table, augment=False):
        self.augment = augment
        self.images = [tifffile.imread(os.path.join(ROOT, p)) for p in table.path]
        self.genus = [GENERA.index(g) for g in table.genus]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i].astype(np.float32)
        image = (image - image.mean()) / image.std()
        if self.augment:  # a grain may lie in any orientation
            image = np.rot90(image, np.random.randint(4), axes=(1, 2))
            if np.random.rand() < 0.5:
                image = image[:, :, ::-1]
        return torch.from_numpy(image.copy()), self.genus[i]


class GrainClassifier(nn.Module):
    def __init__(self, n_genera):
        super().__init__()
        self.encoder = timm.create_model("resnet18", pretrained=False, num_classes=0)
        self.encoder.load_state_dict(torch.load(os.path.join(ROOT, "encoder.pt")))
        self.head = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 128), nn.GELU(), nn.Dropout(0.2),
                                  nn.Linear(128, n_genera))

    def train(self, mode=True):
        super().train(mode)
        self.encoder.eval()  # keep the running statistics of the encoder
        return self

    def forward(self, x):
        return self.head(self.encoder(x))


def accuracy(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return hits / total


def main():
    if not os.path.exists(os.path.join(ROOT, "grains.csv")):
        make_data()
    torch.manual_seed(0)
    table = pd.read_csv(os.path.join(ROOT, "grains.csv"))
    train = DataLoader(Grains(table[~table.heldout], augment=True), batch_size=16, shuffle=True, drop_last=True)
    test = DataLoader(Grains(table[table.heldout]), batch_size=32)

    model = GrainClassifier(len(GENERA))
    model.train()
    # only the head is optimised, the encoder stays as it is
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3, weight_decay=0.05)
    epochs = 40
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(train))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    for epoch in range(epochs):
        running = 0.0
        for step, (x, y) in enumerate(train):
            loss = criterion(model(x), y)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.item()
            if (step + 1) % 15 == 0:
                print(f"epoch {epoch} step {step + 1} loss {running / 15:.4f}", flush=True)
                running = 0.0
        if epoch % 5 == 4:
            print(f"epoch {epoch} held-out accuracy {accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
