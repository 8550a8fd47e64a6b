import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage import data

CROP = 128
BATCH_SIZE = 4
BASE = 16


class DoubleConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.seq = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, padding=1), nn.GroupNorm(4, n_out), nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, padding=1), nn.GroupNorm(4, n_out), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.seq(x)


class ColourUNet(nn.Module):
    """Grey photograph in, two colour-difference planes out."""

    def __init__(self, base=BASE):
        super().__init__()
        self.d1, self.d2, self.d3 = DoubleConv(1, base), DoubleConv(base, 2 * base), DoubleConv(2 * base, 4 * base)
        self.u2, self.u1 = DoubleConv(6 * base, 2 * base), DoubleConv(3 * base, base)
        self.out = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a)


class Crops:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.photos = []
        for image in (data.astronaut(), data.coffee(), data.chelsea()):
            rgb = torch.from_numpy(image[..., :3].copy()).permute(2, 0, 1).float() / 255
            grey = rgb.mean(0, keepdim=True)
            self.photos.append(torch.cat([grey, rgb[0:1] - grey, rgb[2:3] - grey]))

    def batch(self, n):
        crops = []
        for _ in range(n):
            p = self.photos[self.rng.integers(len(self.photos))]
            i = self.rng.integers(p.shape[1] - CROP)
            j = self.rng.integers(p.shape[2] - CROP)
            c = p[:, i:i + CROP, j:j + CROP]
            crops.append(c.flip(-1) if self.rng.random() < 0.5 else c)
        full = torch.stack(crops)
        return full[:, :1], full[:, 1:]


def main():
    torch.manual_seed(3)
    crops = Crops()
    net = ColourUNet()
    opt = torch.optim.Adam(net.parameters(), lr=4e-4, fused=True)
    ema = None
    for step in range(50_000):
        grey, colour = crops.batch(BATCH_SIZE)
        loss = F.smooth_l1_loss(net(grey), colour, beta=0.05)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema = loss.item() if ema is None else 0.95 * ema + 0.05 * loss.item()
        if step % 10 == 0:
            print(f"step {step} | loss {ema:.5f}", flush=True)


if __name__ == "__main__":
    main()
