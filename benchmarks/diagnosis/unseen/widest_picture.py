# Which photograph was this scrap torn from? Scraps come in all sizes.
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage import data
from torch.utils.data import DataLoader

CANVAS = 224
BATCH = 8
N_SCRAPS = 1200

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=500)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--seed", type=int, default=3)


def tear(photos, n, seed):
    rng = np.random.default_rng(seed)
    scraps, labels = [], []
    for _ in range(n):
        k = int(rng.integers(len(photos)))
        photo = photos[k]
        # many small ones, now and then a big one
        h = int(40 + 175 * rng.beta(1.2, 3.5))
        w = int(np.clip(h * rng.uniform(0.8, 1.25), 40, 220))
        y = int(rng.integers(photo.shape[0] - h))
        x = int(rng.integers(photo.shape[1] - w))
        scrap = torch.from_numpy(photo[y : y + h, x : x + w].copy()).permute(2, 0, 1)
        scraps.append(scrap.contiguous())
        labels.append(k)
    return list(zip(scraps, labels))


def lay_out(items):
    """Scraps on a common canvas, with a mask of where there is paper."""
    canvas = CANVAS
    sheet = torch.zeros(len(items), 3, canvas, canvas)
    mask = torch.zeros(len(items), 1, canvas, canvas)
    for i, (scrap, _) in enumerate(items):
        h, w = scrap.shape[1:]
        sheet[i, :, :h, :w] = scrap.float().div_(255).sub_(0.5)
        mask[i, :, :h, :w] = 1
    return sheet, mask, torch.tensor([label for _, label in items])


class MaskedStage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x, mask):
        mask = F.max_pool2d(mask, 2, ceil_mode=True)
        return F.relu(self.norm(self.conv(x))) * mask, mask


class ScrapNet(nn.Module):
    def __init__(self, width, n_out):
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width, 4 * width]
        self.stages = nn.ModuleList(MaskedStage(a, b) for a, b in zip(sizes, sizes[1:]))
        self.fc = nn.Linear(sizes[-1], n_out)

    def forward(self, x, mask):
        for stage in self.stages:
            x, mask = stage(x, mask)
        return self.fc((x * mask).sum((2, 3)) / mask.sum((2, 3)))


if __name__ == "__main__":
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    photos = [data.astronaut(), data.coffee(), data.chelsea(), np.repeat(data.camera()[..., None], 3, axis=2)]
    scraps = tear(photos, N_SCRAPS, args.seed)
    loader = DataLoader(scraps, collate_fn=lay_out, batch_size=BATCH, shuffle=True)
    net = ScrapNet(args.width, len(photos))
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        losses = []
        for sheet, mask, label in loader:
            loss = F.cross_entropy(net(sheet, mask), label)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
            if len(losses) % 40 == 0:
                print("epoch", epoch, "batch", len(losses), "loss", round(torch.stack(losses[-40:]).mean().item(), 4))
        print("--- epoch", epoch, "mean loss", torch.stack(losses).mean().item())
