# RealNVP density model of 4x4 grey patches (dequantised) cut from photographs
import argparse
import math
import random

import numpy as np
import torch
from skimage import color, data
from torch import nn


def set_up(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_printoptions(precision=4, sci_mode=False)
    torch.autograd.set_detect_anomaly(True)
    return torch.device("cpu")


def patches(n=200_000):
    imgs = [color.rgb2gray(data.astronaut()), color.rgb2gray(data.coffee()), color.rgb2gray(data.chelsea())]
    out = []
    for im in imgs:
        w = np.lib.stride_tricks.sliding_window_view(im, (4, 4))
        ys = np.random.randint(0, w.shape[0], n // 3)
        xs = np.random.randint(0, w.shape[1], n // 3)
        out.append(w[ys, xs].reshape(-1, 16))
    x = np.concatenate(out).astype(np.float32)
    x = (x * 255 + np.random.rand(*x.shape).astype(np.float32)) / 256
    x = np.log(x.clip(1e-3, 1 - 1e-3) / (1 - x.clip(1e-3, 1 - 1e-3)))
    x = (x - x.mean(0)) / x.std(0)
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.half = dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 2 * self.half),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * torch.exp(s) + t
        y = torch.cat([b, a], 1) if self.flip else torch.cat([a, b], 1)
        return y, s.sum(1)


class RealNVP(nn.Module):
    def __init__(self, dim=16, hidden=192, n_layers=8):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(Coupling(dim, hidden, bool(i % 2)) for i in range(n_layers))

    def log_prob(self, x):
        logdet = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        return -0.5 * (x ** 2).sum(1) - 0.5 * self.dim * math.log(2 * math.pi) + logdet


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--bs", type=int, default=512)
    p.add_argument("--lr", type=float, default=5e-4)
    args = p.parse_args()
    device = set_up(args)

    x = patches().to(device)
    flow = RealNVP().to(device)
    opt = torch.optim.Adam(flow.parameters(), lr=args.lr, fused=True)
    step = 0
    for epoch in range(args.epochs):
        for idx in torch.randperm(len(x)).split(args.bs):
            nll = -flow.log_prob(x[idx]).mean()
            opt.zero_grad(set_to_none=True)
            nll.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} nll/dim {nll.item() / 16:.4f}", flush=True)


if __name__ == "__main__":
    main()
