"""A small vision transformer that tells leaf photographs of eight species apart."""
import csv
import math
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from einops import rearrange
from PIL import Image, ImageDraw, ImageFilter
from torch.utils.data import DataLoader, Dataset

DATA_DIR = os.path.join(tempfile.gettempdir(), "vit_leaves_cc")
LABELS = os.path.join(DATA_DIR, "labels.csv")
SPECIES = ["oak", "maple", "birch", "willow", "beech", "elm", "linden", "ash"]

IMAGE_SIZE = 72
CROP = 64
PATCH = 8
BATCH_SIZE = 16
EPOCHS = 80
LR = 5e-4


def draw_leaf(species, rng):
    w, h = 640, 480
    ground = rng.normal(0, 18, (h // 4, w // 4, 3)) + np.array([120, 100, 75])
    image = Image.fromarray(ground.clip(0, 255).astype(np.uint8)).resize((w, h), Image.BICUBIC)
    cx, cy, size, turn = rng.uniform(240, 400), rng.uniform(180, 300), rng.uniform(110, 190), rng.uniform(0, 6.28)
    lobes, depth, slim = 2 + species, 0.08 + 0.04 * (species % 4), 0.35 + 0.08 * (species % 5)
    points = []
    for a in np.linspace(0, 2 * math.pi, 160):
        r = size * (1 + depth * math.sin(lobes * a)) * (0.75 + 0.25 * math.cos(a))
        x, y = r * math.cos(a), slim * r * math.sin(a)
        points.append((cx + x * math.cos(turn) - y * math.sin(turn), cy + x * math.sin(turn) + y * math.cos(turn)))
    draw = ImageDraw.Draw(image)
    green = tuple(int(c) for c in rng.normal([60, 120, 45], 15).clip(0, 255))
    draw.polygon(points, fill=green, outline=(30, 60, 20))
    draw.line([points[0], points[80]], fill=(160, 170, 90), width=4)
    return image.filter(ImageFilter.GaussianBlur(0.8))


def make_images():
    os.makedirs(DATA_DIR, exist_ok=True)
    rng = np.random.default_rng(11)
    rows = []
    for i in range(1200):
        species = int(rng.integers(len(SPECIES)))
        name = f"{SPECIES[species]}_{i:04d}.jpg"
        draw_leaf(species, rng).save(os.path.join(DATA_DIR, name), quality=92)
        rows.append([name, SPECIES[species]])
    with open(LABELS, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["file", "species"])
        writer.writerows(rows)


class LeafDataset(Dataset):
    def __init__(self, rows, train):
        self.rows = rows
        self.train = train

    def __len__(self):
        return len(self.rows)

    def load(self, i):
        image = Image.open(os.path.join(DATA_DIR, self.rows[i]["file"])).convert("RGB")
        return np.asarray(image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.BILINEAR))

    def __getitem__(self, i):
        pixels = self.load(i)
        if self.train:
            top, left = random.randint(0, IMAGE_SIZE - CROP), random.randint(0, IMAGE_SIZE - CROP)
        else:
            top = left = (IMAGE_SIZE - CROP) // 2
        pixels = pixels[top:top + CROP, left:left + CROP]
        if self.train and random.random() < 0.5:
            pixels = pixels[:, ::-1]
        x = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
        return (x - 0.5) / 0.5, SPECIES.index(self.rows[i]["species"])


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=64, depth=3, heads=4):
        super().__init__()
        patches = (CROP // PATCH) ** 2
        self.embed = nn.Linear(3 * PATCH * PATCH, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.randn(1, patches + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(SPECIES))

    def forward(self, x):
        x = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=PATCH, q=PATCH)
        x = self.embed(x)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(0)
    random.seed(0)
    if not os.path.exists(LABELS):
        print("drawing leaves ...")
        make_images()
    with open(LABELS, newline="") as f:
        rows = list(csv.DictReader(f))
    train_set, val_set = LeafDataset(rows[:1050], True), LeafDataset(rows[1050:], False)
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=BATCH_SIZE)

    model = ViT()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(EPOCHS):
        start, total = time.time(), 0.0
        for i, (x, y) in enumerate(train_loader, 1):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if i % 20 == 0:
                print(f"epoch {epoch} [{i}/{len(train_loader)}] loss {total / i:.4f}")
        print(f"epoch {epoch} done in {time.time() - start:.1f} s, validation accuracy {accuracy(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
