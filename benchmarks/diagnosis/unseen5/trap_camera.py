"""Counting animals on trail-camera stills."""
import json
import math
import pathlib
import random
import tempfile

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

CFG = {
    "seed": 77,
    "data": {"root": "trap_camera_stills", "n": 180, "full": [1200, 900], "small": [176, 132], "crop": 120},
    "loader": {"batch_size": 12, "num_workers": 1, "persistent_workers": True, "prefetch_factor": 4},
    "model": {"stem": 20, "stages": [20, 40, 64], "drop": 0.1},
    "optim": {"lr": 1e-3, "weight_decay": 1e-4, "epochs": 250},
}


def paint_still(rng, size):
    w, h = size
    ground = rng.integers(40, 140, size=(h // 24, w // 24, 3), dtype=np.uint8)
    im = Image.fromarray(ground).resize((w, h), Image.BILINEAR)
    d = ImageDraw.Draw(im)
    for _ in range(60):
        x = int(rng.integers(w))
        d.line([(x, h), (x + int(rng.integers(-90, 90)), int(rng.integers(h // 2, h)))], fill=(50, 90, 40), width=3)
    count = int(rng.integers(0, 7))
    for _ in range(count):
        x, y = int(rng.integers(100, w - 200)), int(rng.integers(200, h - 200))
        r = int(rng.integers(50, 95))
        d.ellipse([x - r, y - r // 2, x + r, y + r // 2], fill=(140, 95, 60))
        d.ellipse([x + r - 20, y - r // 2 - 30, x + r + 40, y - r // 2 + 25], fill=(150, 105, 70))
    return im, count


def prepare(cfg):
    root = pathlib.Path(tempfile.gettempdir()) / cfg["root"]
    index = root / "counts.json"
    if not index.exists():
        root.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(CFG["seed"])
        counts = {}
        for i in range(cfg["n"]):
            im, n = paint_still(rng, cfg["full"])
            im.save(root / f"still_{i:04d}.jpg", quality=92)
            counts[f"still_{i:04d}.jpg"] = n
        index.write_text(json.dumps(counts))
    return root, json.loads(index.read_text())


class Stills(Dataset):
    def __init__(self, root, counts, names, small, crop, train):
        self.root, self.counts, self.names = root, counts, names
        self.small, self.crop, self.train = tuple(small), crop, train

    def __len__(self):
        return len(self.names)

    def load(self, name):
        with Image.open(self.root / name) as im:
            return np.asarray(im.convert("RGB").resize(self.small, Image.BILINEAR))

    def __getitem__(self, i):
        a = self.load(self.names[i])
        dy, dx = a.shape[0] - self.crop, a.shape[1] - self.crop
        y, x = (random.randint(0, dy), random.randint(0, dx)) if self.train else (dy // 2, dx // 2)
        a = a[y:y + self.crop]
        if self.train and random.random() < 0.5:
            a = a[:, ::-1]
        t = torch.from_numpy(np.ascontiguousarray(a)).permute(2, 0, 1).float() / 127.5 - 1
        return t, float(self.counts[self.names[i]])


class Counter(nn.Module):
    def __init__(self, stem, stages, drop):
        super().__init__()
        seq, c = [nn.Conv2d(3, stem, 5, stride=2, padding=2), nn.BatchNorm2d(stem), nn.ReLU()], stem
        for s in stages:
            seq += [nn.Conv2d(c, s, 3, padding=1), nn.BatchNorm2d(s), nn.ReLU(), nn.MaxPool2d(2)]
            c = s
        self.body = nn.Sequential(*seq)
        self.head = nn.Sequential(nn.Dropout2d(drop), nn.Conv2d(c, 1, 1), nn.Softplus())

    def forward(self, x):
        return self.head(self.body(x)).sum((1, 2, 3)) * 0.05


def lr_at(epoch, cfg):
    return 0.5 * (1 + math.cos(math.pi * epoch / cfg["epochs"]))


def main(cfg=CFG):
    random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    root, counts = prepare(cfg["data"])
    names = sorted(counts)
    n_val = len(names) // 10
    args = dict(small=cfg["data"]["small"], crop=cfg["data"]["crop"])
    train = Stills(root, counts, names[n_val:], train=True, **args)
    val = Stills(root, counts, names[:n_val], train=False, **args)
    held = [val[i] for i in range(len(val))]
    vx, vy = torch.stack([a for a, _ in held]), torch.tensor([b for _, b in held])
    loader = DataLoader(train, shuffle=True, drop_last=True, **cfg["loader"])
    model = Counter(**cfg["model"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["optim"]["lr"], weight_decay=cfg["optim"]["weight_decay"])
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: lr_at(e, cfg["optim"]))
    for epoch in range(cfg["optim"]["epochs"]):
        model.train()
        total = 0.0
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(model(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        sched.step()
        line = {"epoch": epoch, "loss": round(total / len(loader), 4)}
        if epoch % 5 == 4:
            model.eval()
            with torch.no_grad():
                line["mae"] = round((model(vx) - vy).abs().mean().item(), 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
