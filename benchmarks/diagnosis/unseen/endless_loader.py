"""Single-object detector on pasted coins.  python endless_loader.py DIR"""
import os
import sys
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from skimage import data
from torch.utils.data import DataLoader, Dataset

IMAGES_PER_BATCH = 12
NET_INPUT = 80
STEM = 16


@dataclass
class Config:
    root: str
    n_images: int = 72
    photo_size: tuple = (720, 540)
    epochs: int = 3000
    lr: float = 0.002


def render_dataset(cfg):
    rng = np.random.default_rng(9)
    coin = Image.fromarray(data.coins()[20:80, 20:80]).convert("RGB")
    grounds = [Image.fromarray(im).resize(cfg.photo_size) for im in (data.coffee(), data.rocket(), data.chelsea())]
    boxes = []
    for k in range(cfg.n_images):
        scene = grounds[k % len(grounds)].copy()
        side = int(rng.integers(120, 270))
        left = int(rng.integers(0, scene.width - side))
        top = int(rng.integers(0, scene.height - side))
        scene.paste(coin.resize((side, side)), (left, top))
        boxes.append([(left + side / 2) / scene.width, (top + side / 2) / scene.height,
                      side / scene.width, side / scene.height])
        scene.save(os.path.join(cfg.root, f"scene_{k:03d}.jpg"), quality=90)
    np.save(os.path.join(cfg.root, "boxes.npy"), np.array(boxes, np.float32))


class Scenes(Dataset):
    def __init__(self, root):
        self.root = root
        self.boxes = np.load(os.path.join(root, "boxes.npy"))

    def __len__(self):
        return len(self.boxes) * 20       # twenty flips/jitters of each scene per epoch

    def __getitem__(self, index):
        k = index % len(self.boxes)
        image = Image.open(os.path.join(self.root, f"scene_{k:03d}.jpg")).convert("RGB")
        image = image.resize((NET_INPUT, NET_INPUT), Image.BILINEAR)
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        box = torch.from_numpy(self.boxes[k].copy())
        if torch.rand(()) < 0.5:
            x, box[0] = x.flip(2), 1 - box[0]
        return x, box


class Repeat:
    def __init__(self, batch_sampler):
        self.batch_sampler = batch_sampler

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        while True:
            yield from self.batch_sampler


class EndlessLoader(DataLoader):
    """Keeps its workers between epochs."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
        self.stream = None

    def __iter__(self):
        if self.stream is None:
            self.stream = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.stream)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for width in (STEM, 2 * STEM, 4 * STEM):
            layers += [nn.Conv2d(before, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()]
            before = width
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(before * (NET_INPUT // 8) ** 2, 4), nn.Sigmoid())

    def forward(self, x):
        return self.head(self.backbone(x))


def fit(cfg):
    torch.manual_seed(0)
    render_dataset(cfg)
    loader = EndlessLoader(Scenes(cfg.root), batch_size=IMAGES_PER_BATCH, shuffle=True,
                           num_workers=1, drop_last=True)
    model = Detector().train()
    optimizer = torch.optim.SGD(model.parameters(), cfg.lr, momentum=0.9)
    for epoch in range(cfg.epochs):
        losses = []
        for x, target in loader:
            loss = (model(x) - target).abs().mean() * 4
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"[{epoch:4d}] box loss {torch.stack(losses).mean():.4f}")


if __name__ == "__main__":
    fit(Config(root=sys.argv[1]))
