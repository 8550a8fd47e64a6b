import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch.utils.data import DataLoader, Dataset

# ----------------------------------------------------------------------------
# aerial photographs (drawn): fields, roads, roofs
# ----------------------------------------------------------------------------
SIDE = 432
TILE = 112


def draw_photo(rng):
    base = rng.integers(60, 150, size=(11, 11, 3), dtype=np.uint8)
    img = Image.fromarray(base).resize((SIDE, SIDE), Image.BICUBIC)
    mask = Image.new("L", (SIDE, SIDE), 0)
    d, m = ImageDraw.Draw(img), ImageDraw.Draw(mask)
    for _ in range(4):
        a, b = rng.integers(0, SIDE, 2).tolist(), rng.integers(0, SIDE, 2).tolist()
        d.line([tuple(a), tuple(b)], fill=(120, 118, 115), width=14)
    for _ in range(36):
        cx, cy = rng.integers(0, SIDE, 2)
        w, h = rng.integers(10, 34, 2)
        t = rng.uniform(0, np.pi)
        corners = np.array([[-w, -h], [w, -h], [w, h], [-w, h]]) @ [[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]]
        poly = [tuple(p) for p in (corners + [cx, cy]).tolist()]
        tone = rng.integers(-25, 25)
        d.polygon(poly, fill=(int(165 + tone), int(90 + tone), int(75 + tone)))
        m.polygon(poly, fill=255)
    return img, mask


# ----------------------------------------------------------------------------
# joint transforms (image, mask) -> (image, mask)
# ----------------------------------------------------------------------------
class Rotate:
    def __init__(self, degrees):
        self.degrees = degrees

    def __call__(self, img, mask):
        a = random.uniform(-self.degrees, self.degrees)
        return img.rotate(a, Image.BILINEAR), mask.rotate(a, Image.NEAREST)


class Light:
    def __call__(self, img, mask):
        for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            img = kind(img).enhance(random.uniform(0.75, 1.25))
        return img, mask


class Haze:
    def __call__(self, img, mask):
        return img.filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.5))), mask


class Grain:
    def __call__(self, img, mask):
        a = np.asarray(img, dtype=np.float32)
        a = a + np.random.standard_normal(a.shape).astype(np.float32) * random.uniform(1, 8)
        return Image.fromarray(a.clip(0, 255).astype(np.uint8)), mask


class Crop:
    def __init__(self, size, where="anywhere"):
        self.size, self.where = size, where

    def __call__(self, img, mask):
        spare_x, spare_y = img.width - self.size, img.height - self.size
        if self.where == "centre":
            x, y = spare_x // 2, spare_y // 2
        else:
            x, y = random.randint(0, spare_x), random.randint(0, spare_y)
        box = (x, y, x + self.size, y + self.size)
        return img.crop(box), mask.crop(box)


TRAIN = [Rotate(20), Light(), Haze(), Grain(), Crop(TILE)]
TEST = [Crop(SIDE // 4 * 2, "centre")]


class Roofs(Dataset):
    def __init__(self, photos, steps, length):
        self.photos, self.steps, self.length = photos, steps, length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        img, mask = self.photos[i % len(self.photos)]
        for s in self.steps:
            img, mask = s(img, mask)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div_(255).sub_(0.45)
        return x, torch.from_numpy(np.array(mask) > 127).float()


def worker_seed(worker):
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)


class Net(nn.Module):
    def __init__(self, c=14):
        super().__init__()
        def blk(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU(),
                                 nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
        self.a, self.b, self.c = blk(3, c), blk(c, 2 * c), blk(2 * c, 4 * c)
        self.d, self.e = blk(6 * c, 2 * c), blk(3 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        e = self.e(torch.cat([F.interpolate(d, scale_factor=2), a], 1))
        return self.out(e).squeeze(1)


if __name__ == "__main__":
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    photos = [draw_photo(rng) for _ in range(72)]
    train_loader = DataLoader(Roofs(photos[:64], TRAIN, 640), batch_size=5, shuffle=True, num_workers=2,
                              persistent_workers=True, prefetch_factor=4, worker_init_fn=worker_seed)
    test = [Roofs(photos[64:], TEST, 8)[i] for i in range(8)]
    net = Net()
    optim = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(100):
        net.train()
        tic, running = time.perf_counter(), 0.0
        for n, (x, y) in enumerate(train_loader, 1):
            loss = F.binary_cross_entropy_with_logits(net(x), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
            running += loss.item()
            if n % 20 == 0:
                print("epoch %d  %3d  loss %.4f" % (epoch, n, running / n), flush=True)
        net.eval()
        with torch.no_grad():
            pred = torch.cat([net(x[None]) > 0 for x, _ in test])
        true = torch.stack([y for _, y in test]) > 0.5
        iou = (pred & true).sum() / (pred | true).sum()
        print("epoch %d  IoU %.3f  (%.0f s)" % (epoch, iou.item(), time.perf_counter() - tic), flush=True)
