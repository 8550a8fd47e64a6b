# Denoising autoencoder on natural image patches.
# Chapter 3: how do the activation distributions of the layers drift?
import argparse
import json
import os
import tempfile
from collections import defaultdict

import numpy as np
import skimage.data
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--patch", type=int, default=32)
    p.add_argument("--n-patches", type=int, default=10000)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--depth", type=int, default=5)
    p.add_argument("--sigma", type=float, default=0.15)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=150)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--log-every", type=int, default=40)
    return p.parse_args()


def cut_patches(n, size, seed):
    rng = np.random.default_rng(seed)
    photos = [skimage.data.astronaut(), skimage.data.coffee(),
              skimage.data.chelsea(), skimage.data.rocket()]
    out = np.empty((n, size, size, 3), dtype=np.uint8)
    for i in range(n):
        im = photos[rng.integers(len(photos))]
        y = rng.integers(im.shape[0] - size)
        x = rng.integers(im.shape[1] - size)
        p = im[y:y + size, x:x + size]
        out[i] = p[:, ::-1] if rng.random() < 0.5 else p
    return torch.from_numpy(out).permute(0, 3, 1, 2).contiguous()


class NoisyPatches(Dataset):
    def __init__(self, patches, sigma):
        self.patches, self.sigma = patches, sigma

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, i):
        clean = self.patches[i].float().div_(255).sub_(0.5)
        return clean + self.sigma * torch.randn_like(clean), clean


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1)
        self.norm = nn.GroupNorm(4, c)
        self.act = nn.GELU()
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(self.act(self.norm(self.conv1(x))))


class DAE(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.body = nn.Sequential(*[ResBlock(2 * width) for _ in range(depth)])
        self.up = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        h = self.body(torch.relu(self.down(h)))
        return x - self.out(torch.relu(self.up(h)))


class ActivationLog:
    """Collects per-layer summaries of the forward activations."""

    def __init__(self, model):
        self.step = 0
        self.rows = defaultdict(list)
        self.levels = torch.tensor([0.01, 0.25, 0.5, 0.75, 0.99])
        for name, module in model.named_modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.GELU)):
                module.register_forward_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(module, inputs, output):
            a = output.detach().flatten()
            q = torch.quantile(a, self.levels)
            self.rows[name].append({
                "step": self.step,
                "mean": a.mean().item(),
                "std": a.std().item(),
                "norm": a.norm().item(),
                "q": q.tolist(),
            })
        return hook

    def dump(self, path):
        with open(path, "w") as fh:
            json.dump({k: v[-200:] for k, v in self.rows.items()}, fh)
        for v in self.rows.values():
            del v[:-200]


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    np.random.seed(args.seed)
    outdir = os.path.join(tempfile.gettempdir(), "patch_autoencoder")
    os.makedirs(outdir, exist_ok=True)

    data = NoisyPatches(cut_patches(args.n_patches, args.patch, args.seed), args.sigma)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)

    model = DAE(args.width, args.depth)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters")
    log = ActivationLog(model)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader))

    for epoch in range(args.epochs):
        for noisy, clean in loader:
            pred = model(noisy)
            loss = nn.functional.mse_loss(pred, clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            log.step += 1
            if log.step % args.log_every == 0:
                psnr = -10 * np.log10(loss.item())
                print(f"epoch {epoch:3d}  step {log.step:6d}  mse {loss.item():.5f}  psnr {psnr:.2f} dB", flush=True)
        log.dump(os.path.join(outdir, "activations.json"))


if __name__ == "__main__":
    main()
