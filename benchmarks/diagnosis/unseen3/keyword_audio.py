#!/usr/bin/env python3
"""Keyword spotting on synthetic chirps: log-mel front end + depthwise-separable CNN."""
import argparse
import logging
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("kws")
SR = 8000


def parse():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--threads", type=int, default=48, help="CPU threads (our render node has 48)")
    ap.add_argument("--clips", type=int, default=2400)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=120)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--width", type=int, default=48)
    return ap.parse_args()


def synth_clips(n, n_words=12, seed=1):
    rng = np.random.default_rng(seed)
    t = np.arange(SR) / SR
    words = rng.uniform(200, 3000, size=(n_words, 3, 2))
    y = rng.integers(0, n_words, n)
    x = np.empty((n, SR), dtype=np.float32)
    for k in range(n):
        s = 0
        for f0, f1 in words[y[k]] * rng.uniform(0.93, 1.07):
            s = s + np.sin(2 * math.pi * (f0 * t + 0.5 * (f1 - f0) * t * t) + rng.uniform(0, 6))
        env = np.exp(-((t - rng.uniform(0.35, 0.65)) / 0.2) ** 2)
        x[k] = s * env + rng.normal(size=SR) * 0.4
    return torch.from_numpy(x), torch.from_numpy(y)


def mel_bank(n_mels=40, n_fft=256):
    mel = np.linspace(0, 2595 * np.log10(1 + SR / 2 / 700), n_mels + 2)
    hz = 700 * (10 ** (mel / 2595) - 1)
    freqs = np.linspace(0, SR / 2, n_fft // 2 + 1)
    up = (freqs - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - freqs) / (hz[2:] - hz[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(up, down)).astype(np.float32))


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bank", mel_bank())
        self.register_buffer("win", torch.hann_window(256))

    @torch.no_grad()
    def forward(self, wav):
        spec = torch.stft(wav, 256, 128, window=self.win, return_complex=True).abs().square()
        return torch.log(self.bank @ spec + 1e-5).unsqueeze(1)


def ds_block(c, stride=1):
    return nn.Sequential(
        nn.Conv2d(c, c, 3, stride, 1, groups=c, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
        nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
    )


class KWSNet(nn.Module):
    def __init__(self, width, n_words=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, (5, 5), 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(ds_block(width), ds_block(width, 2), ds_block(width), ds_block(width))
        self.fc = nn.Linear(width, n_words)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


def spec_augment(feat):
    f0 = int(torch.randint(0, 32, ()))
    t0 = int(torch.randint(0, 50, ()))
    feat = feat.clone()
    feat[:, :, f0 : f0 + 6] = feat.mean()
    feat[..., t0 : t0 + 10] = feat.mean()
    return feat


def run_epoch(model, front, opt, x, y, batch, epoch):
    tic, seen, hits = time.time(), 0, 0
    for n, idx in enumerate(torch.randperm(len(x)).split(batch), 1):
        feat = spec_augment(front(x[idx]))
        logits = model(feat)
        loss = F.cross_entropy(logits, y[idx], label_smoothing=0.05)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        seen += len(idx)
        hits += (logits.argmax(1) == y[idx]).sum().item()
        if n % 5 == 0:
            log.info("epoch %d  batch %d  loss %.3f  acc %.3f  %.1f clips/s", epoch, n, loss.item(), hits / seen, seen / (time.time() - tic))


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    x, y = synth_clips(args.clips)
    log.info("clips %s", tuple(x.shape))
    model, front = KWSNet(args.width), LogMel()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
    for epoch in range(args.epochs):
        run_epoch(model, front, opt, x, y, args.batch, epoch)
        sched.step()


if __name__ == "__main__":
    main()
