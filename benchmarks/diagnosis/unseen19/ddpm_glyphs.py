"""Denoising diffusion (Ho et al., 2020) on small grey pictures of glyphs, with a little U-Net."""
import glob
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, TensorDataset

DATA_DIR = os.path.join(tempfile.gettempdir(), "ddpm_glyphs_cc")
DONE = os.path.join(DATA_DIR, "done.txt")

SIZE = 32
TIMESTEPS = 300
BATCH_SIZE = 16
EPOCHS = 40
LR = 2e-4
EMA_DECAY = 0.995


def make_glyphs():
    os.makedirs(DATA_DIR, exist_ok=True)
    rng = np.random.default_rng(2)
    for i in range(4000):
        image = Image.new("L", (SIZE * 2, SIZE * 2), 0)
        draw = ImageDraw.Draw(image)
        points = [tuple(int(v) for v in rng.integers(10, 54, 2)) for _ in range(rng.integers(2, 5))]
        draw.line(points, fill=255, width=int(rng.integers(4, 8)), joint="curve")
        if rng.random() < 0.5:
            x, y, r = rng.integers(14, 40), rng.integers(14, 40), rng.integers(6, 14)
            draw.ellipse([int(x), int(y), int(x + 2 * r), int(y + r)], outline=255, width=5)
        image.resize((SIZE, SIZE), Image.LANCZOS).save(os.path.join(DATA_DIR, f"glyph_{i:05d}.png"))
    open(DONE, "w").close()


def load_glyphs():
    files = sorted(glob.glob(os.path.join(DATA_DIR, "glyph_*.png")))
    pictures = np.stack([np.asarray(Image.open(f)) for f in files])
    return torch.from_numpy(pictures).float().unsqueeze(1) / 127.5 - 1


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
        self.register_buffer("freqs", freqs)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        angles = t[:, None].float() * self.freqs
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, cin), nn.GroupNorm(8, cout)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.time = nn.Linear(tdim, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(t)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + self.skip(x)


class UNet(nn.Module):
    def __init__(self, c=16, tdim=64):
        super().__init__()
        self.time = TimeEmbedding(tdim)
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.down1, self.down2 = ResBlock(c, c, tdim), ResBlock(c, 2 * c, tdim)
        self.pool1 = nn.Conv2d(c, c, 3, stride=2, padding=1)
        self.pool2 = nn.Conv2d(2 * c, 2 * c, 3, stride=2, padding=1)
        self.middle = ResBlock(2 * c, 2 * c, tdim)
        self.up2, self.up1 = ResBlock(4 * c, c, tdim), ResBlock(2 * c, c, tdim)
        self.out = nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, 1, 3, padding=1))

    def forward(self, x, t):
        t = self.time(t)
        a = self.down1(self.stem(x), t)                  # 32 x 32
        b = self.down2(self.pool1(a), t)                 # 16 x 16
        h = self.middle(self.pool2(b), t)                # 8 x 8
        h = self.up2(torch.cat([F.interpolate(h, scale_factor=2), b], dim=1), t)
        h = self.up1(torch.cat([F.interpolate(h, scale_factor=2), a], dim=1), t)
        return self.out(h)


class Diffusion:
    def __init__(self):
        self.betas = torch.linspace(1e-4, 0.03, TIMESTEPS)
        self.alphas = 1 - self.betas
        self.alpha_bars = torch.cumprod(self.alphas, dim=0)

    def add_noise(self, x, t, noise):
        ab = self.alpha_bars[t][:, None, None, None]
        return ab.sqrt() * x + (1 - ab).sqrt() * noise

    @torch.no_grad()
    def sample(self, model, n):
        x = torch.randn(n, 1, SIZE, SIZE)
        for t in reversed(range(TIMESTEPS)):
            eps = model(x, torch.full((n,), t))
            x = (x - self.betas[t] / (1 - self.alpha_bars[t]).sqrt() * eps) / self.alphas[t].sqrt()
            if t > 0:
                x = x + self.betas[t].sqrt() * torch.randn_like(x)
        return x.clamp(-1, 1)


def save_grid(x, path):
    rows = torch.cat([torch.cat(list(r[:, 0]), dim=1) for r in x.split(4)], dim=0)
    Image.fromarray(((rows + 1) * 127.5).byte().numpy()).save(path)


def main():
    torch.manual_seed(0)
    if not os.path.exists(DONE):
        print("drawing glyphs ...")
        make_glyphs()
    pictures = load_glyphs()
    loader = DataLoader(TensorDataset(pictures), batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    model, ema, diffusion = UNet(), UNet(), Diffusion()
    ema.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    print(f"{len(pictures)} pictures, {sum(p.numel() for p in model.parameters())} parameters")

    for epoch in range(EPOCHS):
        start, total = time.time(), 0.0
        for i, (x,) in enumerate(loader, 1):
            t = torch.randint(0, TIMESTEPS, (len(x),))
            noise = torch.randn_like(x)
            loss = F.mse_loss(model(diffusion.add_noise(x, t, noise), t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for p_ema, p in zip(ema.parameters(), model.parameters()):
                    p_ema.lerp_(p, 1 - EMA_DECAY)
            total += loss.item()
            if i % 25 == 0:
                print(f"epoch {epoch} step {i}/{len(loader)} loss {total / i:.4f}")
        print(f"epoch {epoch} took {time.time() - start:.0f} s")
        if epoch % 5 == 4:
            save_grid(diffusion.sample(ema, 16), os.path.join(DATA_DIR, f"samples_{epoch:03d}.png"))


if __name__ == "__main__":
    main()
