"""Crop type mapping on one multi-date satellite scene: patch classifier, hand-made trainer."""
import multiprocessing as mp
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch import nn

CACHE = pathlib.Path(tempfile.gettempdir()) / "crop_scene"
BANDS = ("B02", "B03", "B04", "B08", "B11", "B12")
SIDE = 2000
CLASSES = 5


def get_scene():
    CACHE.mkdir(exist_ok=True)
    scene_file, lab_file = CACHE / "scene.npy", CACHE / "landuse.npy"
    if not lab_file.exists():
        rng = np.random.default_rng(2021)
        fields = rng.integers(0, CLASSES, (SIDE // 80, SIDE // 80)).astype(np.uint8)
        landuse = fields.repeat(80, 0).repeat(80, 1)
        spectra = rng.uniform(400, 2600, (CLASSES, len(BANDS)))
        scene = np.empty((len(BANDS), SIDE, SIDE), np.uint16)
        for b in range(len(BANDS)):
            soil = rng.normal(0, 260, (SIDE // 20, SIDE // 20)).repeat(20, 0).repeat(20, 1)
            scene[b] = np.clip(spectra[landuse, b] + soil + rng.normal(0, 300, (SIDE, SIDE)), 1, 9999)
        np.save(scene_file, scene)
        np.save(lab_file, landuse)
    return np.load(scene_file), np.load(lab_file)


class PatchSampler:
    """Cuts augmented patches out of the scene; a few processes do it ahead of time."""

    def __init__(self, scene, landuse, patch=48, batch=24, procs=2):
        self.scene = scene
        self.landuse = landuse
        self.patch = patch
        self.batch = batch
        self.mean = scene[:, ::16, ::16].mean((1, 2)).astype(np.float32)[:, None, None]
        self.std = scene[:, ::16, ::16].std((1, 2)).astype(np.float32)[:, None, None]
        self.procs = procs

    def cut(self, rng):
        p = self.patch
        y, x = rng.integers(0, SIDE - p, 2)
        raw = self.scene[:, y:y + p, x:x + p].astype(np.float32)
        label = self.landuse[y + p // 2, x + p // 2]
        nir, red, swir = raw[3], raw[2], raw[4]
        ndvi = (nir - red) / (nir + red + 1e-3)
        ndwi = (nir - swir) / (nir + swir + 1e-3)
        out = np.concatenate([(raw - self.mean) / self.std, ndvi[None], ndwi[None]])
        if rng.random() < 0.5:
            out = out[:, ::-1]
        out = np.rot90(out, int(rng.integers(4)), axes=(1, 2))
        out = out * np.float32(rng.normal(1, 0.03))
        return out, label

    def make_batch(self, seed):
        rng = np.random.default_rng(seed)
        xs, ys = zip(*[self.cut(rng) for _ in range(self.batch)])
        return np.stack(xs), np.array(ys, dtype=np.int64)

    def start(self):
        self.pool = mp.get_context("fork").Pool(self.procs)
        return self

    def epoch(self, number, steps):
        seeds = [number * 100_003 + s for s in range(steps)]
        for x, y in self.pool.imap(self.make_batch, seeds):
            yield torch.from_numpy(x), torch.from_numpy(y)

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("pool", None)
        return state


class Trainer:
    def __init__(self, sampler, steps_per_epoch=80):
        self.sampler = sampler
        self.steps = steps_per_epoch
        self.net = self.build()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=400)
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.history = []

    @staticmethod
    def build():
        layers, c = [], len(BANDS) + 2
        for width in (128, 192, 256):
            layers += [nn.Conv2d(c, width, 3, padding=1, stride=2), nn.GroupNorm(4, width), nn.SiLU()]
            c = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, CLASSES))

    def one_epoch(self, e):
        self.net.train()
        tic, seen, right, acc = time.time(), 0, 0, 0.0
        for s, (x, y) in enumerate(self.sampler.epoch(e, self.steps)):
            out = self.net(x)
            loss = self.loss_fn(out, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            seen += len(y)
            right += int((out.argmax(1) == y).sum())
            acc += loss.item()
            if s % 20 == 0:
                print(f"  e{e} s{s:03d} loss={loss.item():.3f}", flush=True)
        self.sched.step()
        self.history.append(acc / self.steps)
        print(f"epoch {e}: loss={self.history[-1]:.4f} acc={right / seen:.3f} ({seen / (time.time() - tic):.0f} patches/s)",
              flush=True)

    def fit(self, epochs):
        for e in range(epochs):
            self.one_epoch(e)
            if e % 10 == 9:
                torch.save({"net": self.net.state_dict(), "hist": self.history}, CACHE / "last.pt")


if __name__ == "__main__":
    torch.manual_seed(7)
    scene, landuse = get_scene()
    print("scene", scene.shape, scene.dtype, f"{scene.nbytes / 2**20:.0f} MiB")
    sampler = PatchSampler(scene, landuse).start()
    Trainer(sampler).fit(400)
