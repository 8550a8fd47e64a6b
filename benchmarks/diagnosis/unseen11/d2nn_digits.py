"""All-optical classifier: train the phase masks of a diffractive network.

Light from an amplitude-encoded object passes a stack of phase plates and falls
on a detector plane with ten regions; the brightest region is the predicted
class.  Propagation between the plates is the angular spectrum method.

    python d2nn_digits.py --plates 5 --n 128
"""
import argparse
import logging
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage

log = logging.getLogger("d2nn")

CACHE = Path(tempfile.gettempdir()) / "d2nn_digits"


# ----------------------------------------------------------------------------
# data
# ----------------------------------------------------------------------------
def make_glyphs(n_samples, size, seed):
    """Ten families of random strokes, jittered: a stand-in for MNIST."""
    rng = np.random.default_rng(seed)
    proto_rng = np.random.default_rng(1234)
    protos = []
    for _ in range(10):
        img = np.zeros((size, size), np.float32)
        pts = proto_rng.uniform(4, size - 4, (5, 2))
        for a, b in zip(pts[:-1], pts[1:]):
            for t in np.linspace(0, 1, 60):
                y, x = (1 - t) * a + t * b
                img[int(y), int(x)] = 1.0
        protos.append(np.clip(ndimage.gaussian_filter(img, 1.1) * 6, 0, 1))
    labels = rng.integers(0, 10, n_samples)
    out = np.zeros((n_samples, size, size), np.float32)
    for i, y in enumerate(labels):
        ang = rng.uniform(-12, 12)
        img = ndimage.rotate(protos[y], ang, reshape=False, order=1)
        img = ndimage.shift(img, rng.uniform(-2, 2, 2), order=1)
        out[i] = img + rng.normal(0, 0.03, img.shape)
    return np.clip(out, 0, 1).astype(np.float32), labels.astype(np.int64)


def load_data(size=28):
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / "glyphs.npz"
    if not path.exists():
        x, y = make_glyphs(6000, size, seed=0)
        xv, yv = make_glyphs(500, size, seed=1)
        np.savez(path, x=x, y=y, xv=xv, yv=yv)
    z = np.load(path)
    return [torch.from_numpy(z[k]) for k in ("x", "y", "xv", "yv")]


# ----------------------------------------------------------------------------
# optics
# ----------------------------------------------------------------------------
def transfer_function(n, pitch, wavelength, z):
    """Angular spectrum transfer function on an n x n grid."""
    fx = np.fft.fftfreq(n, d=pitch)
    fxx, fyy = np.meshgrid(fx, fx, indexing="ij")
    arg = 1.0 / wavelength ** 2 - fxx ** 2 - fyy ** 2
    kz = 2 * np.pi * np.sqrt(np.maximum(arg, 0.0))
    h = np.exp(1j * kz * z)
    h[arg < 0] = 0.0
    return torch.from_numpy(h)


class FreeSpace(nn.Module):
    def __init__(self, n, pitch, wavelength, z):
        super().__init__()
        self.register_buffer("h", transfer_function(n, pitch, wavelength, z))

    def forward(self, field):
        return torch.fft.ifft2(torch.fft.fft2(field) * self.h)


class PhasePlate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.phase = nn.Parameter(torch.empty(n, n).uniform_(0, 2 * math.pi))

    def forward(self, field):
        return field * torch.polar(torch.ones_like(self.phase), self.phase)


class DiffractiveNet(nn.Module):
    def __init__(self, n, plates, pitch, wavelength, z):
        super().__init__()
        self.n = n
        self.gaps = nn.ModuleList(
            [FreeSpace(n, pitch, wavelength, z) for _ in range(plates + 1)])
        self.plates = nn.ModuleList([PhasePlate(n) for _ in range(plates)])
        self.register_buffer("regions", self._regions(n))

    @staticmethod
    def _regions(n, side=0.1):
        """Detector windows: rows of 3, 4 and 3."""
        masks = torch.zeros(10, n, n)
        k, s = 0, int(n * side)
        for row, cols in zip((0.25, 0.5, 0.75), (3, 4, 3)):
            for c in range(cols):
                cy, cx = int(row * n), int((c + 1) / (cols + 1) * n)
                masks[k, cy - s // 2:cy + s // 2, cx - s // 2:cx + s // 2] = 1
                k += 1
        return masks.flatten(1)

    def encode(self, img):
        img = F.interpolate(img[:, None], size=self.n // 2, mode="bilinear")[:, 0]
        pad = (self.n - img.shape[-1]) // 2
        amp = F.pad(img, (pad, pad, pad, pad))
        return torch.complex(amp, torch.zeros_like(amp))

    def forward(self, img):
        u = self.gaps[0](self.encode(img))
        for plate, gap in zip(self.plates, self.gaps[1:]):
            u = gap(plate(u))
        intensity = (u.real.square() + u.imag.square()).flatten(1).float()
        energy = intensity @ self.regions.t()
        return energy / energy.sum(1, keepdim=True)


# ----------------------------------------------------------------------------
@torch.no_grad()
def accuracy(net, x, y, bs=100):
    hit = 0
    for i in range(0, len(x), bs):
        hit += (net(x[i:i + bs]).argmax(1) == y[i:i + bs]).sum().item()
    return hit / len(x)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=128, help="grid points per side")
    p.add_argument("--plates", type=int, default=5)
    p.add_argument("--pitch", type=float, default=400e-6)
    p.add_argument("--wavelength", type=float, default=750e-6)
    p.add_argument("--distance", type=float, default=30e-3)
    p.add_argument("--batch-size", type=int, default=24)
    p.add_argument("--lr", type=float, default=2e-2)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    x, y, xv, yv = load_data()
    log.info("train %s  val %s", tuple(x.shape), tuple(xv.shape))

    net = DiffractiveNet(args.n, args.plates, args.pitch, args.wavelength,
                         args.distance)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        order = torch.randperm(len(x))
        t0, run = time.time(), 0.0
        for i in range(0, len(x) - args.batch_size + 1, args.batch_size):
            idx = order[i:i + args.batch_size]
            share = net(x[idx])
            loss = F.cross_entropy(share * 10.0, y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            run = 0.98 * run + 0.02 * loss.item() if run else loss.item()
            step += 1
            if step % 50 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, run)
        acc = accuracy(net, xv, yv)
        log.info("epoch %d done in %.1fs  val acc %.3f", epoch,
                 time.time() - t0, acc)
    torch.save({"model": net.state_dict(), "args": vars(args)},
               CACHE / "last.pt")


if __name__ == "__main__":
    main()
