"""Tiny tutorial: teach a network to paint. We fit a coordinate network f(x, y, which) -> rgb."""
import gc
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from skimage import data
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

HERE = os.path.join(tempfile.gettempdir(), "picture_field")
NAMES = ["astronaut", "coffee", "chelsea"]
torch.manual_seed(1)


def prepare():
    os.makedirs(HERE, exist_ok=True)
    for name in NAMES:
        target = os.path.join(HERE, name + ".png")
        if not os.path.exists(target):
            Image.fromarray(getattr(data, name)()).resize((256, 256)).save(target)


def read_picture(name):
    with Image.open(os.path.join(HERE, name + ".png")) as im:
        return np.asarray(im.convert("RGB"), dtype=np.float64)


class PixelStream(IterableDataset):
    """Yields (coordinates, picture number, colour) in blocks, each pass in a new order."""

    def __init__(self, block):
        self.block = block
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        rng = np.random.RandomState(self.passes)
        colours, coords, which = [], [], []
        for k, name in enumerate(NAMES):
            picture = read_picture(name)
            h, w, _ = picture.shape
            yy, xx = np.meshgrid(np.linspace(-1, 1, h), np.linspace(-1, 1, w), indexing="ij")
            colours.append(picture.reshape(-1, 3) / 127.5 - 1)
            coords.append(np.stack([xx.ravel(), yy.ravel()], axis=1))
            which.append(np.full(h * w, k))
        colours = np.concatenate(colours)
        coords = np.concatenate(coords)
        which = np.concatenate(which)
        order = rng.permutation(len(colours))
        for i in range(0, len(order) - self.block + 1, self.block):
            pick = order[i:i + self.block]
            yield (torch.tensor(coords[pick]).float(),
                   torch.tensor(which[pick]).long(),
                   torch.tensor(colours[pick]).float())


class FourierFeatures(nn.Module):
    def __init__(self, count, sigma):
        super().__init__()
        self.register_buffer("freq", torch.randn(2, count) * sigma)

    def forward(self, xy):
        phase = 2 * np.pi * xy @ self.freq
        return torch.cat([phase.sin(), phase.cos()], dim=-1)


class Field(nn.Module):
    def __init__(self, n_pictures, width=768):
        super().__init__()
        self.features = FourierFeatures(96, 4.0)
        self.style = nn.Embedding(n_pictures, 64)
        layers = []
        last = 192 + 64
        for _ in range(4):
            layers.append(nn.Linear(last, width))
            layers.append(nn.ReLU(inplace=True))
            last = width
        layers.append(nn.Linear(last, 3))
        self.mlp = nn.Sequential(*layers)

    def forward(self, xy, which):
        return self.mlp(torch.cat([self.features(xy), self.style(which)], dim=-1))


def psnr(mse):
    # colours lie in [-1, 1]
    return 10 * np.log10(4 / mse)


def main():
    prepare()
    stream = PixelStream(block=2048)
    loader = DataLoader(stream, batch_size=None, num_workers=0)
    net = Field(len(NAMES))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, fused=True)
    history = []
    checkpoint = os.path.join(HERE, "field.pt")
    t0 = time.time()
    for epoch in range(400):
        for step, (xy, which, rgb) in enumerate(loader):
            for group in optimizer.param_groups:
                group["lr"] = 5e-4 * 0.98 ** epoch
            prediction = net(xy, which)
            error = ((prediction - rgb) ** 2).mean()
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            history.append(error.item())
            if torch.isnan(error).any():
                raise RuntimeError("diverged")
            if step % 24 == 0:
                mean = float(np.mean(history[-24:]))
                print(f"epoch {epoch:3d} step {step:3d} loss {mean:.5f} psnr {psnr(mean):.2f} dB "
                      f"({time.time() - t0:.0f} s)", flush=True)
        torch.save(net.state_dict(), checkpoint + ".new")
        shutil.move(checkpoint + ".new", checkpoint)
        gc.collect()


if __name__ == "__main__":
    main()
