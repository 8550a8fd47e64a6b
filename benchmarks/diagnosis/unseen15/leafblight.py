"""Leaf blight grading with transfer learning.

The encoder was trained by the phenotyping group on unlabelled leaf tiles and
is delivered as a state dict; here only a new head is fitted on the graded
photos (0 healthy, 1 rust, 2 blight, 3 mildew).
"""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchvision.models import resnet18

DATA_DIR = os.path.join(tempfile.gettempdir(), "leafblight")
IMG_SIZE = 64
NUM_CLASSES = 4


# ---------------------------------------------------------------- data
def draw_leaf(label, rng):
    yy, xx = np.mgrid[0:IMG_SIZE, 0:IMG_SIZE] / IMG_SIZE - 0.5
    img = np.empty((3, IMG_SIZE, IMG_SIZE), np.float32)
    soil = rng.uniform(0.2, 0.4)
    img[0], img[1], img[2] = soil, soil * 0.8, soil * 0.6
    angle = rng.uniform(0, np.pi)
    u = xx * np.cos(angle) + yy * np.sin(angle)
    v = -xx * np.sin(angle) + yy * np.cos(angle)
    leaf = (u / rng.uniform(0.38, 0.48)) ** 2 + (v / rng.uniform(0.2, 0.3)) ** 2 < 1
    green = np.array([0.2, rng.uniform(0.45, 0.65), 0.15])
    for c in range(3):
        img[c][leaf] = green[c]
    vein = leaf & (np.abs(v) < 0.01)
    img[1][vein] += 0.15
    if label > 0:
        colour = {1: (0.7, 0.35, 0.1), 2: (0.25, 0.2, 0.1), 3: (0.85, 0.85, 0.8)}[label]
        for _ in range(rng.integers(4, 14)):
            cx, cy = rng.uniform(-0.3, 0.3, 2)
            r = rng.uniform(0.015, 0.03) * (2.5 if label == 2 else 1)
            spot = leaf & ((xx - cx) ** 2 + (yy - cy) ** 2 < r ** 2)
            for c in range(3):
                img[c][spot] = colour[c]
    img += rng.normal(0, 0.03, img.shape)
    return np.clip(img, 0, 1)


def prepare():
    os.makedirs(DATA_DIR, exist_ok=True)
    photos = os.path.join(DATA_DIR, "photos.npz")
    encoder = os.path.join(DATA_DIR, "encoder.pt")
    if not os.path.exists(photos):
        rng = np.random.default_rng(3)
        y = rng.integers(0, NUM_CLASSES, 2000)
        x = np.stack([draw_leaf(k, rng) for k in y])
        np.savez(photos, x=(x * 255).astype(np.uint8), y=y)
    if not os.path.exists(encoder):
        torch.manual_seed(3)
        torch.save(resnet18(weights=None).state_dict(), encoder)
    return photos, encoder


# ---------------------------------------------------------------- model
class LeafClassifier(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.base = resnet18(weights=None)
        self.base.load_state_dict(torch.load(weights))
        self.base.fc = nn.Identity()
        self.base.trainable = False          # only the head is fitted
        self.head = nn.Sequential(
            nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(128, NUM_CLASSES))

    def forward(self, x):
        return self.head(self.base(x))


def augment(x):
    # layers.RandomFlip("horizontal_and_vertical") + RandomBrightness(0.1)
    if torch.rand(1) < 0.5:
        x = x.flip(3)
    if torch.rand(1) < 0.5:
        x = x.flip(2)
    return x + (torch.rand(len(x), 1, 1, 1) - 0.5) * 0.2


# ---------------------------------------------------------------- fit / evaluate
def fit(model, train, val, epochs, lr):
    loss_fn = nn.CrossEntropyLoss()
    opt = optim.Adam(model.head.parameters(), lr=lr)
    history = {"loss": [], "accuracy": [], "val_loss": [], "val_accuracy": []}
    best, patience = float("inf"), 0
    for epoch in range(epochs):
        start = time.time()
        model.eval()
        model.head.train()
        total, correct, seen = 0.0, 0, 0
        for i, (x, y) in enumerate(train):
            x = augment(x)
            opt.zero_grad()
            out = model(x)
            loss = loss_fn(out, y)
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
            correct += (out.argmax(1) == y).sum().item()
            seen += len(y)
            print(f"\r{i + 1}/{len(train)} - loss: {total / seen:.4f} "
                  f"- accuracy: {correct / seen:.4f}", end="", flush=True)
        val_loss, val_acc = evaluate(model, val, loss_fn)
        print(f" - val_loss: {val_loss:.4f} - val_accuracy: {val_acc:.4f} "
              f"- {time.time() - start:.0f}s")
        for k, v in zip(history, (total / seen, correct / seen, val_loss, val_acc)):
            history[k].append(v)
        if val_loss < best:
            best, patience = val_loss, 0
            torch.save(model.head.state_dict(), os.path.join(DATA_DIR, "best_head.pt"))
        else:
            patience += 1
            if patience >= 12:
                print("Early stopping")
                break
    return history


@torch.no_grad()
def evaluate(model, loader, loss_fn):
    model.eval()
    total, correct, seen = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        total += loss_fn(out, y).item() * len(y)
        correct += (out.argmax(1) == y).sum().item()
        seen += len(y)
    return total / seen, correct / seen


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--batch_size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()

    photos, encoder = prepare()
    with np.load(photos) as f:
        x_all = torch.from_numpy(f["x"]).float() / 255.0
        y_all = torch.from_numpy(f["y"])
    x_all = (x_all - x_all.mean((0, 2, 3), keepdim=True)) / x_all.std((0, 2, 3), keepdim=True)
    torch.manual_seed(42)
    train_set, val_set = random_split(TensorDataset(x_all, y_all), [1800, 200])
    train = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val = DataLoader(val_set, batch_size=64)

    model = LeafClassifier(encoder)
    fit(model, train, val, args.epochs, args.lr)
