"""Segment bright structures in fundus patches with a U-Net.

Patches come from skimage's retina photograph; the target is a black top-hat
of the green channel, thresholded, i.e. a crude vessel map.
"""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage import data as skdata
from skimage.filters import gaussian
from skimage.transform import resize
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

PATCH = 128
BATCH = 4
EPOCHS = 60
PATCHES = 360
LR = 1e-3

AUGMENT = v2.Compose([
    v2.RandomHorizontalFlip(),
    v2.RandomVerticalFlip(),
    v2.RandomApply([v2.ElasticTransform(alpha=40.0, sigma=4.0)], p=0.15),
    v2.RandomPerspective(distortion_scale=0.2, p=0.4),
    v2.RandomRotation(25),
    v2.ColorJitter(0.2, 0.2),
    v2.RandomApply([v2.GaussianBlur(5)], p=0.3),
])


def fundus():
    photo = skdata.retina()
    photo = resize(photo, (700, 700), anti_aliasing=True).astype(np.float32)
    green = photo[..., 1]
    dark = gaussian(green, 8) - gaussian(green, 1)
    inside = gaussian(photo.mean(-1), 10) > 0.12
    mask = (dark > 0.012) & inside
    return torch.from_numpy(photo).permute(2, 0, 1).contiguous(), torch.from_numpy(mask.astype(np.float32))[None]


class Patches(Dataset):
    def __init__(self, photo, mask, n, seed):
        self.photo, self.mask = photo, mask
        rng = np.random.default_rng(seed)
        self.corners = rng.integers(60, 700 - PATCH - 60, (n, 2))

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, i):
        y, x = self.corners[i]
        img = tv_tensors.Image(self.photo[:, y:y + PATCH, x:x + PATCH])
        msk = tv_tensors.Mask(self.mask[:, y:y + PATCH, x:x + PATCH])
        img, msk = AUGMENT(img, msk)
        return img.as_subclass(torch.Tensor) * 2 - 1, msk.as_subclass(torch.Tensor)


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(8, cout), nn.SiLU(),
        nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(8, cout), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, widths=(24, 48, 96, 128)):
        super().__init__()
        self.down = nn.ModuleList()
        c = 3
        for w in widths:
            self.down.append(double(c, w))
            c = w
        self.up = nn.ModuleList()
        for w in reversed(widths[:-1]):
            self.up.append(double(c + w, w))
            c = w
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        skips = []
        for k, block in enumerate(self.down):
            x = block(x if k == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        x = skips.pop()
        for block in self.up:
            skip = skips.pop()
            x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = block(torch.cat([x, skip], 1))
        return self.out(x)


def bce_dice(logits, target):
    bce = F.binary_cross_entropy_with_logits(logits, target)
    p = torch.sigmoid(logits)
    inter = (p * target).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
    return bce + dice.mean(), 1 - dice.mean().item()


def main():
    torch.manual_seed(0)
    photo, mask = fundus()
    print(f"vessel share {mask.mean():.3f}")
    loader = DataLoader(Patches(photo, mask, PATCHES, 0), BATCH, shuffle=True, num_workers=1,
                        persistent_workers=True, drop_last=True)
    net = UNet()
    print(f"{sum(p.numel() for p in net.parameters()):,} weights")
    opt = torch.optim.AdamW(net.parameters(), lr=LR)
    step, ema, t0 = 0, None, time.monotonic()
    for epoch in range(EPOCHS):
        for img, msk in loader:
            loss, dice = bce_dice(net(img), msk)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            ema = loss.item() if ema is None else 0.9 * ema + 0.1 * loss.item()
            if step % 5 == 0:
                rate = step / (time.monotonic() - t0)
                print(f"ep {epoch} it {step} loss {ema:.4f} dice {dice:.3f} {rate:.2f} it/s", flush=True)


if __name__ == "__main__":
    main()
