"""Denoise short astronomical light curves with a small U-Net; checkpoints, accumulation, clipping: the full kit."""
import dataclasses
import pathlib
import sys
import tempfile

import torch
from torch import nn

ACCUMULATE = 4
MICRO_BATCH = 8
CHANNELS = 24
POINTS = 512


@dataclasses.dataclass
class Settings:
    steps: int = 100_000
    lr: float = 1e-3
    clip: float = 1.0
    save_every: int = 200
    keep: int = 2
    print_every: int = 50


def light_curves(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, POINTS)
    period = 0.08 + 0.3 * torch.rand(n, 1, generator=g)
    phase = (t / period + torch.rand(n, 1, generator=g)) % 1.0
    depth = 0.2 + 0.8 * torch.rand(n, 1, generator=g)
    clean = -depth * torch.exp(-((phase - 0.5) / 0.06) ** 2) + 0.2 * torch.sin(6.28 * t + period * 20)
    noisy = clean + 0.3 * torch.randn(n, POINTS, generator=g)
    return noisy.unsqueeze(1), clean.unsqueeze(1)


def double_conv(a, b):
    return nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.ReLU(), nn.Conv1d(b, b, 5, padding=2), nn.ReLU())


class UNet1d(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.down1, self.down2, self.bottom = double_conv(1, c), double_conv(c, 2 * c), double_conv(2 * c, 4 * c)
        self.up2, self.up1 = double_conv(6 * c, 2 * c), double_conv(3 * c, c)
        self.pool, self.grow = nn.MaxPool1d(2), nn.Upsample(scale_factor=2)
        self.out = nn.Conv1d(c, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        z = self.bottom(self.pool(b))
        z = self.up2(torch.cat([self.grow(z), b], 1))
        z = self.up1(torch.cat([self.grow(z), a], 1))
        return x + self.out(z)


def save(folder, step, net, opt, keep):
    torch.save({"step": step, "net": net.state_dict(), "opt": opt.state_dict()}, folder / f"step_{step:07d}.pt")
    for old in sorted(folder.glob("step_*.pt"))[:-keep]:
        old.unlink()


def main(folder):
    cfg = Settings()
    torch.manual_seed(70)
    noisy, clean = light_curves(6000, 70)
    net = UNet1d(CHANNELS)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
    for step in range(1, cfg.steps + 1):
        opt.zero_grad()
        total = 0.0
        for rows in torch.randint(len(noisy), (ACCUMULATE, MICRO_BATCH)):
            loss = nn.functional.l1_loss(net(noisy[rows]), clean[rows]) / ACCUMULATE
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)
        opt.step()
        if step % cfg.print_every == 0:
            print(f"step {step} | l1 {total.item():.4f} | grad {norm.item():.3f}", flush=True)
        if step % cfg.save_every == 0:
            save(folder, step, net, opt, cfg.keep)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
