"""Building footprints from aerial scenes: a small U-Net on tiles cut from larger PNG scenes."""
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader, Dataset, Sampler

ROOT = Path(tempfile.gettempdir()) / "aerial_tiles_data"


@dataclass
class Config:
    scenes: int = 20
    scene_size: int = 1500
    tile: int = 96
    batch_size: int = 8
    width: int = 8
    lr: float = 2e-3
    weight_decay: float = 1e-4
    epochs: int = 40
    workers: int = 2
    log_every: int = 25
    val_tiles: int = 96
    seed: int = 3


def make_scene(rng, size):
    base = gaussian_filter(rng.normal(size=(size // 4, size // 4)), 12)
    base = np.kron(base / base.std(), np.ones((4, 4)))
    rgb = np.stack([96 + 22 * base, 108 + 26 * base, 82 + 18 * base], -1)
    mask = np.zeros((size, size), np.uint8)
    for _ in range(260):
        h, w = rng.integers(14, 60, 2)
        y, x = rng.integers(0, size - 60, 2)
        colour = rng.choice([[178, 92, 70], [150, 150, 156], [205, 198, 185]])
        rgb[y:y + h, x:x + w] = colour + rng.normal(0, 8, 3)
        mask[y:y + h, x:x + w] = 255
    rgb += rng.normal(0, 5, rgb.shape)
    return rgb.clip(0, 255).astype(np.uint8), mask


def prepare(cfg):
    index = ROOT / "index.json"
    if index.exists():
        return json.loads(index.read_text())
    (ROOT / "images").mkdir(parents=True, exist_ok=True)
    (ROOT / "masks").mkdir(exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    names = []
    for i in range(cfg.scenes):
        rgb, mask = make_scene(rng, cfg.scene_size)
        Image.fromarray(rgb).save(ROOT / "images" / f"scene_{i:03d}.png", compress_level=3)
        Image.fromarray(mask).save(ROOT / "masks" / f"scene_{i:03d}.png")
        names.append(f"scene_{i:03d}.png")
    record = {"train": names[:-3], "val": names[-3:]}
    index.write_text(json.dumps(record))
    return record


class TileDataset(Dataset):
    """Regular grid of tiles over every scene, with flips while training."""

    def __init__(self, names, cfg, train):
        self.train = train
        self.tile = cfg.tile
        steps = range(0, cfg.scene_size - cfg.tile + 1, cfg.tile)
        self.items = [(n, y, x) for n in names for y in steps for x in steps]

    def __len__(self):
        return len(self.items)

    def read_scene(self, name):
        image = np.array(Image.open(ROOT / "images" / name).convert("RGB"))
        mask = np.array(Image.open(ROOT / "masks" / name))
        return image, mask

    def __getitem__(self, i):
        name, y, x = self.items[i]
        image, mask = self.read_scene(name)
        image = image[y:y + self.tile, x:x + self.tile]
        mask = mask[y:y + self.tile, x:x + self.tile]
        if self.train:
            if np.random.rand() < 0.5:
                image, mask = image[:, ::-1], mask[:, ::-1]
            if np.random.rand() < 0.5:
                image, mask = image[::-1], mask[::-1]
        image = torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1)
        return {"image": (image - 0.42) / 0.15, "mask": torch.from_numpy((mask > 127).astype(np.float32))}


class EpochSampler(Sampler):
    def __init__(self, n, seed):
        self.n, self.seed, self.epoch = n, seed, 0

    def __iter__(self):
        self.epoch += 1
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(torch.randperm(self.n, generator=g).tolist())

    def __len__(self):
        return self.n


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.d1, self.d2, self.d3, self.d4 = block(3, w), block(w, 2 * w), block(2 * w, 4 * w), block(4 * w, 8 * w)
        self.u3, self.u2, self.u1 = block(12 * w, 4 * w), block(6 * w, 2 * w), block(3 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        d = self.d4(F.max_pool2d(c, 2))
        up = lambda t: F.interpolate(t, scale_factor=2, mode="nearest")
        c = self.u3(torch.cat([up(d), c], 1))
        b = self.u2(torch.cat([up(c), b], 1))
        a = self.u1(torch.cat([up(b), a], 1))
        return self.head(a).squeeze(1)


def bce_dice(logits, target):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum((1, 2)) + 1) / (p.sum((1, 2)) + target.sum((1, 2)) + 1)
    return F.binary_cross_entropy_with_logits(logits, target) + dice.mean()


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        split = prepare(cfg)
        train = TileDataset(split["train"], cfg, True)
        val = TileDataset(split["val"], cfg, False)
        val.items = val.items[::max(1, len(val.items) // cfg.val_tiles)]
        self.loader = DataLoader(train, cfg.batch_size, sampler=EpochSampler(len(train), cfg.seed),
                                 num_workers=cfg.workers, drop_last=True, persistent_workers=True)
        self.val_loader = DataLoader(val, cfg.batch_size)
        self.model = UNet(cfg.width)
        self.opt = torch.optim.AdamW(self.model.parameters(), cfg.lr, weight_decay=cfg.weight_decay)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.epochs * len(self.loader))
        self.step = 0

    def train_step(self, batch):
        loss = bce_dice(self.model(batch["image"]), batch["mask"])
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        inter = union = 0.0
        for batch in self.val_loader:
            p, t = self.model(batch["image"]) > 0, batch["mask"] > 0.5
            inter += (p & t).sum().item()
            union += (p | t).sum().item()
        self.model.train()
        return inter / max(union, 1)

    def fit(self):
        best = 0.0
        for epoch in range(self.cfg.epochs):
            start = time.time()
            for batch in self.loader:
                loss = self.train_step(batch)
                if self.step % self.cfg.log_every == 0:
                    print(f"epoch {epoch} step {self.step} loss {loss.item():.4f} t {time.time() - start:.1f}s", flush=True)
            iou = self.validate()
            print(f"epoch {epoch} val IoU {iou:.4f}", flush=True)
            if iou > best:
                best = iou
                torch.save({"model": self.model.state_dict(), "config": asdict(self.cfg)}, ROOT / "best.pt")


if __name__ == "__main__":
    Trainer(Config()).fit()
