"""Lesion patch classifier, everything configured in CFG."""
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

CFG = {
    "seed": 7,
    "n_images": 96,
    "image_size": (640, 480),
    "patches_per_image": 6,
    "context": 136,
    "patch": 96,
    "batch_size": 16,
    "workers": 2,
    "epochs": 150,
    "lr": 1e-3,
    "width": 24,
}


def synth_photo(rng, label, size):
    """Skin-like background with a few dark spots; label 1 spots are irregular."""
    w, h = size
    yy, xx = np.mgrid[0:h, 0:w].astype(np.float32)
    img = np.empty((h, w, 3), np.float32)
    img[:] = (205, 160, 140)
    img += 12 * np.sin(xx / 37 + rng.uniform(0, 6))[..., None]
    for _ in range(14):
        cx, cy, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(15, 40)
        ang = np.arctan2(yy - cy, xx - cx)
        rad = r * (1 + (0.35 * np.sin(5 * ang) if label else 0))
        img[np.hypot(xx - cx, yy - cy) < rad] = (110, 70, 55)
    img += rng.normal(0, 6, img.shape)
    return Image.fromarray(img.clip(0, 255).astype(np.uint8))


class LesionPatches(Dataset):
    """Photos are kept in memory, every item is one random augmented patch."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg["seed"])
        self.labels = [i % 2 for i in range(cfg["n_images"])]
        self.photos = [synth_photo(rng, y, cfg["image_size"]) for y in self.labels]
        self.repeat = cfg["patches_per_image"]
        self.tf = T.Compose([
            T.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.02),
            T.RandomRotation(25, interpolation=T.InterpolationMode.BILINEAR),
            T.RandomCrop(cfg["context"]),
            T.CenterCrop(cfg["patch"]),
            T.RandomHorizontalFlip(),
            T.ToTensor(),
            T.Normalize((0.7, 0.55, 0.5), (0.2, 0.2, 0.2)),
        ])

    def __len__(self):
        return len(self.photos) * self.repeat

    def __getitem__(self, i):
        k = i // self.repeat
        return self.tf(self.photos[k]), self.labels[k]


def conv(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


def build_model(cfg):
    w = cfg["width"]
    return nn.Sequential(
        conv(3, w, 2), conv(w, w), conv(w, 2 * w, 2), conv(2 * w, 2 * w),
        conv(2 * w, 4 * w, 2), conv(4 * w, 4 * w),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * w, 2),
    ).to(memory_format=torch.channels_last)


def train(cfg):
    torch.manual_seed(cfg["seed"])
    ds = LesionPatches(cfg)
    dl = DataLoader(ds, cfg["batch_size"], shuffle=True, drop_last=True,
                    num_workers=cfg["workers"], persistent_workers=True, prefetch_factor=4)
    model = build_model(cfg)
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"] * 10, momentum=0.9, nesterov=True)
    lossfn = nn.CrossEntropyLoss()
    print(f"{len(ds)} patches per epoch, "
          f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters")

    for epoch in range(cfg["epochs"]):
        model.train()
        tic = time.perf_counter()
        total, hits, count = 0.0, 0, 0
        for images, target in dl:
            images = images.to(memory_format=torch.channels_last)
            out = model(images)
            loss = lossfn(out, target)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            total += loss.item() * len(target)
            hits += int((out.argmax(1) == target).sum())
            count += len(target)
        print(f"[{epoch:03d}] loss={total / count:.4f} acc={hits / count:.3f} "
              f"({time.perf_counter() - tic:.1f}s)", flush=True)
    return model


if __name__ == "__main__":
    train(CFG)
