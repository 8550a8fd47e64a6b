"""Denoising of photographs with a light depthwise-separable network."""
import numpy as np
import torch
import torch.nn as nn
from skimage import data as photos

DEBUG = 1
PATCH = 40
BATCH = 8
CHANNELS = 20


class Checked(nn.Module):
    """Runs a layer; in debug mode also makes sure that it keeps its hands off its input and gives sensible numbers."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.last = None

    def forward(self, x):
        if not DEBUG:
            return self.layer(x)
        assert torch.isfinite(x).all(), f"input of {self.layer} is not finite"
        before = x.clone()
        y = self.layer(x)
        assert torch.equal(before, x), f"{self.layer} changed its input"
        assert torch.isfinite(y).all(), f"output of {self.layer} is not finite"
        if self.last is not None and self.last.shape == y.shape:
            assert not torch.allclose(self.last, y), f"{self.layer} gives the same output for different inputs"
        self.last = y.detach().clone()
        return y


def separable(a, b):
    return [Checked(nn.Conv2d(a, a, 3, padding=1, groups=a)), Checked(nn.Conv2d(a, b, 1)), Checked(nn.LeakyReLU(0.1))]


class Denoiser(nn.Module):
    def __init__(self, c=CHANNELS, depth=4):
        super().__init__()
        layers = [Checked(nn.Conv2d(3, c, 3, padding=1)), Checked(nn.LeakyReLU(0.1))]
        for _ in range(depth):
            layers += separable(c, c)
        self.body = nn.Sequential(*layers, Checked(nn.Conv2d(c, 3, 3, padding=1)))

    def forward(self, x):
        return x - self.body(x)


def load_photos():
    return [p[..., :3].astype(np.float32) / 255 for p in (photos.astronaut(), photos.coffee(), photos.chelsea())]


def patches(images, rng):
    out = np.empty((BATCH, PATCH, PATCH, 3), np.float32)
    for k in range(BATCH):
        image = images[rng.integers(len(images))]
        i, j = rng.integers(image.shape[0] - PATCH), rng.integers(image.shape[1] - PATCH)
        out[k] = image[i:i + PATCH, j:j + PATCH]
    return torch.from_numpy(out).permute(0, 3, 1, 2).contiguous()


def psnr(mse):
    return -10 * np.log10(mse)


def main(iterations=200_000):
    torch.manual_seed(12)
    rng = np.random.default_rng(12)
    images = load_photos()
    net = Denoiser()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    window = []
    for iteration in range(iterations):
        clean = patches(images, rng)
        noisy = clean + 0.1 * torch.randn_like(clean)
        loss = (net(noisy) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.append(loss.detach())
        if len(window) == 100:
            print(f"{iteration + 1:7d}: {psnr(torch.stack(window).mean().item()):.2f} dB", flush=True)
            window.clear()


if __name__ == "__main__":
    main()
