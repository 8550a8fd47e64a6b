# Colour constancy: recover the tint that was put on a crop of a photograph.
import multiprocessing as mp

import numpy as np
import torch
from PIL import Image, ImageFilter
from skimage import data
from torch import nn, optim

CROPS_PER_BATCH = 16
STUDIO = 220          # side of the retouching canvas
LEARNING_RATE_E4 = 8

NET_SIDE = 56
BATCHES_PER_EPOCH = 120
PHOTOS = []


def open_studio():
    """Runs once in the helper: keep the photographs there."""
    for photo in (data.astronaut(), data.coffee(), data.chelsea()):
        PHOTOS.append(Image.fromarray(photo).convert("RGB"))


def retouch(crop):
    canvas = crop.resize((STUDIO, STUDIO), Image.LANCZOS)
    canvas = canvas.filter(ImageFilter.GaussianBlur(2))
    canvas = canvas.filter(ImageFilter.UnsharpMask(3, 80, 2))
    return canvas.resize((NET_SIDE, NET_SIDE), Image.BOX)


def make_batch(seed):
    rng = np.random.default_rng(seed)
    images = np.empty((CROPS_PER_BATCH, NET_SIDE, NET_SIDE, 3), np.float32)
    tints = rng.uniform(0.6, 1.3, (CROPS_PER_BATCH, 3)).astype(np.float32)
    for k in range(CROPS_PER_BATCH):
        photo = PHOTOS[rng.integers(len(PHOTOS))]
        side = int(rng.integers(120, 260))
        left = int(rng.integers(0, photo.width - side))
        top = int(rng.integers(0, photo.height - side))
        crop = retouch(photo.crop((left, top, left + side, top + side)))
        images[k] = np.asarray(crop, np.float32) / 255.0
    images *= tints[:, None, None, :]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), tints


class TintNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(inplace=True),
        )
        self.out = nn.Linear(64, 3)

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3)))


def train():
    torch.manual_seed(4)
    net = TintNet()
    opt = optim.Adam(net.parameters(), lr=LEARNING_RATE_E4 * 1e-4)
    with mp.Pool(1, initializer=open_studio) as helpers:
        for epoch in range(5000):
            seeds = range(epoch * BATCHES_PER_EPOCH, (epoch + 1) * BATCHES_PER_EPOCH)
            total = 0.0
            for images, tints in helpers.imap(make_batch, seeds):
                guess = net(torch.from_numpy(images))
                loss = nn.functional.smooth_l1_loss(guess, torch.from_numpy(tints))
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print("epoch {}: {:.5f}".format(epoch, total / BATCHES_PER_EPOCH), flush=True)


if __name__ == "__main__":
    train()
