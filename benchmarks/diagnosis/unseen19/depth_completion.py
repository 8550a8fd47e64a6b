"""Depth completion for a bin-picking cell: grey image + sparse depth (a few hundred points) -> dense depth.

Grey images are 8 bit PNG, depth maps 16 bit PNG in tenths of a millimetre, as our cameras write them.
"""
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "depth_completion")
HEIGHT, WIDTH = 64, 96
SCALE = 10000.0


def render_bin(rng):
    """A tilted floor with boxes, cylinders and spheres on it; the grey image is a shaded view of the depth."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float64)
    depth = 0.9 + 0.001 * rng.uniform(-1, 1) * x + 0.001 * rng.uniform(-1, 1) * y
    albedo = np.full((HEIGHT, WIDTH), rng.uniform(0.3, 0.5))
    for _ in range(rng.integers(6, 14)):
        cx, cy, r = rng.uniform(0, WIDTH), rng.uniform(0, HEIGHT), rng.uniform(5, 16)
        turn = rng.uniform(0, np.pi)
        u = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
        v = -(x - cx) * np.sin(turn) + (y - cy) * np.cos(turn)
        kind = rng.integers(3)
        if kind == 0:
            inside, height = (abs(u) < r) & (abs(v) < 0.6 * r), np.full_like(x, rng.uniform(0.05, 0.25))
        elif kind == 1:
            inside = (abs(u) < 1.6 * r) & (abs(v) < 0.5 * r)
            height = 0.01 * np.sqrt(np.maximum((0.5 * r) ** 2 - v ** 2, 0)) + 0.05
        else:
            inside = u ** 2 + v ** 2 < (0.7 * r) ** 2
            height = 0.012 * np.sqrt(np.maximum((0.7 * r) ** 2 - u ** 2 - v ** 2, 0)) + 0.02
        top = 0.9 - height - rng.uniform(0, 0.1)
        visible = inside & (top < depth)
        depth[visible] = top[visible]
        albedo[visible] = rng.uniform(0.3, 1.0)
    gy, gx = np.gradient(depth * 60)
    shade = (1 + 0.6 * gx + 0.4 * gy) / np.sqrt(1 + gx ** 2 + gy ** 2)
    grey = (albedo * shade.clip(0.1, 1.5) + rng.normal(0, 0.02, depth.shape)).clip(0, 1)
    return (grey * 255).astype(np.uint8), (depth * SCALE).astype(np.uint16)


def prepare(count=1500):
    done = os.path.join(ROOT, "done.json")
    if os.path.exists(done):
        return json.load(open(done))
    for sub in ("grey", "depth", "runs"):
        os.makedirs(os.path.join(ROOT, sub), exist_ok=True)
    rng = np.random.default_rng(17)
    names = []
    for i in range(count):
        grey, depth = render_bin(rng)
        name = f"{i:05d}.png"
        Image.fromarray(grey).save(os.path.join(ROOT, "grey", name))
        Image.fromarray(depth).save(os.path.join(ROOT, "depth", name))
        names.append(name)
    json.dump(names, open(done, "w"))
    return names


class BinScenes(Dataset):
    def __init__(self, names, train):
        self.names, self.train = names, train

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        grey = np.asarray(Image.open(os.path.join(ROOT, "grey", self.names[i])), dtype=np.float32) / 255
        depth = np.asarray(Image.open(os.path.join(ROOT, "depth", self.names[i]))).astype(np.float32) / SCALE
        rng = np.random.default_rng(None if self.train else i)
        if self.train and rng.random() < 0.5:
            grey, depth = grey[:, ::-1], depth[:, ::-1]
        mask = (rng.random(depth.shape) < 0.04).astype(np.float32)
        sparse = (depth + rng.normal(0, 0.002, depth.shape)).astype(np.float32) * mask
        return torch.from_numpy(np.stack([grey, sparse, mask])), torch.from_numpy(depth[None].copy())


class RunLog:
    """Scalars and distributions of a run as JSON lines, for our dashboard."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.scalars = open(os.path.join(folder, "scalars.jsonl"), "w")
        self.distributions = open(os.path.join(folder, "distributions.jsonl"), "w")
        positive = np.geomspace(1e-9, 1e2, 120)
        self.edges = np.concatenate([-positive[::-1], [0.0], positive])

    def scalar(self, step, **values):
        self.scalars.write(json.dumps({"step": step, **values}) + "\n")
        self.scalars.flush()

    def distribution(self, step, name, tensor):
        values = tensor.detach().cpu().numpy().ravel()
        counts, _ = np.histogram(values, bins=self.edges)
        used = np.nonzero(counts)[0]
        self.distributions.write(json.dumps({"step": step, "name": name, "mean": float(values.mean()), "std": float(values.std()),
                                             "bins": used.tolist(), "counts": counts[used].tolist()}) + "\n")


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class CompletionNet(nn.Module):
    def __init__(self, widths=(12, 24, 48, 96, 192)):
        super().__init__()
        self.down = nn.ModuleList()
        cin = 3
        for w in widths:
            self.down.append(conv_block(cin, w))
            cin = w
        self.up = nn.ModuleList(conv_block(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1]))
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        skips = []
        for k, block in enumerate(self.down):
            x = block(x if k == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), skips.pop()], 1))
        return 0.8 + self.head(x)


def completion_loss(pred, depth):
    dx = (pred - depth).diff(dim=-1).abs().mean()
    dy = (pred - depth).diff(dim=-2).abs().mean()
    return F.l1_loss(pred, depth) + 0.5 * (dx + dy)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    errors = [(model(x) - d).abs().mean((1, 2, 3)) for x, d in loader]
    model.train()
    return 1000 * torch.cat(errors).mean().item()


def main():
    torch.manual_seed(0)
    names = prepare()
    train_loader = DataLoader(BinScenes(names[:-64], True), batch_size=4, shuffle=True, drop_last=True)
    val_loader = DataLoader(BinScenes(names[-64:], False), batch_size=16)
    model = CompletionNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = RunLog(os.path.join(ROOT, "runs", time.strftime("%m%d_%H%M%S")))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    step, started = 0, time.time()
    for epoch in range(30):
        for x, depth in train_loader:
            loss = completion_loss(model(x), depth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            log.scalar(step, loss=loss.item(), epoch=epoch)
            for name, p in model.named_parameters():
                log.distribution(step, "weight/" + name, p)
                log.distribution(step, "gradient/" + name, p.grad)
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {step / (time.time() - started):.2f} steps/s", flush=True)
        error = validate(model, val_loader)
        log.scalar(step, val_mm=error)
        print(f"epoch {epoch}: mean error {error:.2f} mm")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(ROOT, "last.pt"))


if __name__ == "__main__":
    main()
