"""Traffic-sign shapes with a compact inverted-residual network, trained through accelerate."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, TensorDataset

config = dict(
    images=2400,
    side=40,
    batch_size=2,
    lr=5e-4,
    epochs=40,
    width=16,
    log_samples=200,
    seed=1234,
)

KINDS = ["stop", "yield", "round", "square", "diamond", "noentry"]
COLOURS = [(200, 30, 30), (30, 60, 190), (240, 200, 40), (250, 250, 250)]


def polygon(cx, cy, r, corners, turn):
    return [(cx + r * math.cos(turn + 2 * math.pi * k / corners),
             cy + r * math.sin(turn + 2 * math.pi * k / corners)) for k in range(corners)]


def draw_sign(kind, side, rng):
    """Draw at twice the size on a noisy background, then shrink."""
    s = 2 * side
    noise = rng.normal(rng.uniform(60, 180), 25, (s, s, 3)).clip(0, 255).astype(np.uint8)
    img = Image.fromarray(noise)
    d = ImageDraw.Draw(img)
    cx, cy = rng.uniform(0.4, 0.6, 2) * s
    r = rng.uniform(0.25, 0.38) * s
    turn = rng.normal(0, 0.12)
    fill = COLOURS[rng.integers(len(COLOURS))]
    if kind == "stop":
        d.polygon(polygon(cx, cy, r, 8, turn + math.pi / 8), fill=fill)
    elif kind == "yield":
        d.polygon(polygon(cx, cy, r, 3, turn + math.pi / 2), fill=fill)
    elif kind == "square":
        d.polygon(polygon(cx, cy, r, 4, turn + math.pi / 4), fill=fill)
    elif kind == "diamond":
        d.polygon(polygon(cx, cy, r, 4, turn), fill=fill)
    else:
        d.ellipse([cx - r, cy - r, cx + r, cy + r], fill=fill)
        if kind == "noentry":
            d.rectangle([cx - 0.7 * r, cy - 0.18 * r, cx + 0.7 * r, cy + 0.18 * r], fill=(255, 255, 255))
    return np.asarray(img.resize((side, side), Image.BILINEAR))


def make_signs(n, side, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(KINDS), n)
    images = np.stack([draw_sign(KINDS[k], side, rng) for k in labels])
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    return TensorDataset(x, torch.from_numpy(labels))


class Squeeze(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, max(4, c // 4), 1), nn.Conv2d(max(4, c // 4), c, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.b(torch.relu(self.a(s))))


class Inverted(nn.Module):
    def __init__(self, cin, cout, stride, expand=3):
        super().__init__()
        mid = cin * expand
        self.same = stride == 1 and cin == cout
        self.f = nn.Sequential(
            nn.Conv2d(cin, mid, 1, bias=False), nn.GroupNorm(4, mid), nn.Hardswish(),
            nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False), nn.GroupNorm(4, mid), nn.Hardswish(),
            Squeeze(mid),
            nn.Conv2d(mid, cout, 1, bias=False), nn.GroupNorm(4, cout))

    def forward(self, x):
        return x + self.f(x) if self.same else self.f(x)


def sign_net(w, classes):
    plan = [(w, w, 1), (w, 2 * w, 2), (2 * w, 2 * w, 1), (2 * w, 2 * w, 1), (2 * w, 3 * w, 2),
            (3 * w, 3 * w, 1), (3 * w, 3 * w, 1), (3 * w, 4 * w, 2), (4 * w, 4 * w, 1)]
    return nn.Sequential(
        nn.Conv2d(3, w, 3, 2, 1), nn.Hardswish(),
        *[Inverted(*p) for p in plan],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, classes))


def main(cfg):
    accelerator = Accelerator(cpu=True)
    set_seed(cfg["seed"])
    train = DataLoader(make_signs(cfg["images"], cfg["side"], cfg["seed"]), batch_size=cfg["batch_size"],
                       shuffle=True, drop_last=True)
    model = sign_net(cfg["width"], len(KINDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=1e-3)
    model, optimizer, train = accelerator.prepare(model, optimizer, train)
    lossf = nn.CrossEntropyLoss()

    seen, since, loss_sum, t0 = 0, 0, 0.0, time.time()
    for epoch in range(cfg["epochs"]):
        for x, y in train:
            with accelerator.accumulate(model):
                loss = lossf(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            seen += len(x)
            since += len(x)
            loss_sum += loss.item() * len(x)
            if since >= cfg["log_samples"]:
                accelerator.print(f"epoch {epoch} samples {seen} loss {loss_sum / since:.4f} "
                                  f"{seen / (time.time() - t0):.1f} samples/s", flush=True)
                since, loss_sum = 0, 0.0


if __name__ == "__main__":
    main(config)
