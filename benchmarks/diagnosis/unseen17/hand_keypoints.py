"""Train a small heatmap network that finds the 21 landmarks of a hand in photos.

Photos come from a phone (JPEG, as shot); the annotation file holds keypoints in original pixels and a hand box.
"""
import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch.utils.data import DataLoader, Dataset

ROOT = Path(tempfile.gettempdir()) / "hand_keypoints_photos"


@dataclass
class Config:
    input_size: int = 128
    heatmap_size: int = 32
    sigma: float = 1.5
    num_keypoints: int = 21
    width: int = 24
    batch_size: int = 16
    epochs: int = 100
    lr: float = 2e-3
    weight_decay: float = 1e-4
    ema_decay: float = 0.998
    num_photos: int = 220
    photo_size: tuple = (1600, 1200)
    seed: int = 3
    callbacks: list = field(default_factory=lambda: ["console", "checkpoint"])


# ---------------------------------------------------------------- data
def draw_hand(rng, size):
    width, height = size
    base = rng.uniform(40, 200, 3)
    small = np.clip(base + rng.normal(0, 25, (18, 24, 3)), 0, 255).astype(np.uint8)
    photo = Image.fromarray(small).resize(size, Image.BICUBIC)
    draw = ImageDraw.Draw(photo)
    scale = rng.uniform(0.28, 0.42) * height
    wrist = np.array([rng.uniform(0.35, 0.65) * width, rng.uniform(0.7, 0.85) * height])
    skin = tuple(int(c) for c in rng.uniform([150, 100, 80], [240, 190, 160]))
    tilt = rng.uniform(-0.4, 0.4)
    points = [wrist]
    for finger in range(5):
        angle = -np.pi / 2 + tilt + (finger - 2) * 0.33 + rng.normal(0, 0.05)
        position = wrist.copy()
        for bone in (0.75, 0.35, 0.28, 0.2):
            angle += rng.normal(0, 0.12)
            nxt = position + bone * scale * np.array([np.cos(angle), np.sin(angle)])
            draw.line([tuple(position), tuple(nxt)], fill=skin, width=int(scale * 0.14))
            position = nxt
            points.append(position)
    photo = photo.filter(ImageFilter.GaussianBlur(1))
    return photo, np.array(points)


def prepare_photos(cfg):
    if (ROOT / "annotations.json").exists():
        return
    (ROOT / "photos").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    records = []
    for i in range(cfg.num_photos):
        photo, points = draw_hand(rng, cfg.photo_size)
        name = f"IMG_{i:05d}.jpg"
        photo.save(ROOT / "photos" / name, quality=90)
        low, high = points.min(0) - 90, points.max(0) + 90
        records.append({"file": name, "box": [*low, *high], "keypoints": points.round(1).tolist()})
    (ROOT / "annotations.json").write_text(json.dumps(records))


class HandDataset(Dataset):
    def __init__(self, cfg, records, train):
        self.cfg, self.records, self.train = cfg, records, train
        grid = np.arange(cfg.heatmap_size, dtype=np.float32)
        self.grid_x, self.grid_y = grid[None, None, :], grid[None, :, None]

    def __len__(self):
        return len(self.records)

    def make_heatmaps(self, points):
        centres = points * self.cfg.heatmap_size
        dx = self.grid_x - centres[:, 0, None, None]
        dy = self.grid_y - centres[:, 1, None, None]
        return np.exp(-(dx ** 2 + dy ** 2) / (2 * self.cfg.sigma ** 2)).astype(np.float32)

    def __getitem__(self, index):
        record = self.records[index]
        photo = Image.open(ROOT / "photos" / record["file"]).convert("RGB")
        x0, y0, x1, y1 = record["box"]
        points = np.array(record["keypoints"], dtype=np.float32)
        if self.train:
            grow = random.uniform(-0.05, 0.15) * (x1 - x0)
            shift_x, shift_y = random.uniform(-40, 40), random.uniform(-40, 40)
            x0, x1 = x0 - grow + shift_x, x1 + grow + shift_x
            y0, y1 = y0 - grow + shift_y, y1 + grow + shift_y
        side = self.cfg.input_size
        crop = photo.crop([int(v) for v in (x0, y0, x1, y1)]).resize((side, side), Image.BILINEAR)
        points = (points - [x0, y0]) / [x1 - x0, y1 - y0]
        if self.train:
            crop = ImageEnhance.Brightness(crop).enhance(random.uniform(0.7, 1.3))
            crop = ImageEnhance.Contrast(crop).enhance(random.uniform(0.8, 1.2))
        image = torch.from_numpy(np.array(crop)).permute(2, 0, 1).float() / 255
        return {"image": image, "heatmaps": torch.from_numpy(self.make_heatmaps(points)),
                "points": torch.from_numpy(points.astype(np.float32))}


# ---------------------------------------------------------------- model
def block(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class HeatmapNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.stem = nn.Sequential(block(3, w, 2), block(w, w, 2))
        self.down = nn.Sequential(block(w, 2 * w, 2), block(2 * w, 4 * w, 2), block(4 * w, 4 * w))
        self.up = nn.Sequential(nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(2 * w, w, 4, 2, 1))
        self.head = nn.Conv2d(w, cfg.num_keypoints, 1)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.up(self.down(x)))


# ---------------------------------------------------------------- training
class Callback:
    def on_step_end(self, engine): ...
    def on_epoch_end(self, engine): ...


class Console(Callback):
    def on_step_end(self, engine):
        if engine.step % 20 == 0:
            print(f"epoch {engine.epoch} step {engine.step} loss {engine.loss:.5f} {time.time() - engine.start:.0f}s", flush=True)


class Checkpoint(Callback):
    best = float("inf")

    def on_epoch_end(self, engine):
        if engine.val_error < self.best:
            self.best = engine.val_error
            torch.save(engine.ema.state_dict(), ROOT / "best.pt")
        print(f"epoch {engine.epoch}: mean keypoint error {engine.val_error:.4f} (best {self.best:.4f})", flush=True)


CALLBACKS = {"console": Console, "checkpoint": Checkpoint}


class Engine:
    def __init__(self, cfg):
        self.cfg = cfg
        records = json.loads((ROOT / "annotations.json").read_text())
        split = int(0.9 * len(records))
        self.train_loader = DataLoader(HandDataset(cfg, records[:split], True), cfg.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(HandDataset(cfg, records[split:], False), cfg.batch_size)
        self.model = HeatmapNet(cfg)
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(cfg.ema_decay), use_buffers=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), cfg.lr, weight_decay=cfg.weight_decay)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.epochs)
        self.callbacks = [CALLBACKS[name]() for name in cfg.callbacks]
        self.step, self.epoch, self.start = 0, 0, time.time()

    def train_step(self, batch):
        self.model.train()
        loss = F.mse_loss(self.model(batch["image"]), batch["heatmaps"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.ema.update_parameters(self.model)
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.ema.eval()
        errors = []
        for batch in self.val_loader:
            maps = self.ema(batch["image"])
            index = maps.flatten(2).argmax(-1)
            found = torch.stack([index % maps.shape[-1], index // maps.shape[-1]], -1) / maps.shape[-1]
            errors.append((found - batch["points"]).norm(dim=-1).mean())
        return torch.stack(errors).mean().item()

    def fit(self):
        for self.epoch in range(self.cfg.epochs):
            for batch in self.train_loader:
                self.loss = self.train_step(batch)
                self.step += 1
                for callback in self.callbacks:
                    callback.on_step_end(self)
            self.scheduler.step()
            self.val_error = self.validate()
            for callback in self.callbacks:
                callback.on_epoch_end(self)


if __name__ == "__main__":
    config = Config()
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    prepare_photos(config)
    Engine(config).fit()
