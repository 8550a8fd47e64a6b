"""Music tagging: a transformer on log-mel patches, multi-label, with EMA weights."""
import argparse
import copy
import csv
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 8000
N_FFT, HOP, N_MELS = 512, 128, 64
FRAMES = 256
N_TAGS = 12


def mel_matrix():
    pts = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + SR / 2 / 700), N_MELS + 2) / 2595) - 1)
    freqs = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    up = (freqs[None] - pts[:-2, None]) / (pts[1:-1] - pts[:-2])[:, None]
    down = (pts[2:, None] - freqs[None]) / (pts[2:] - pts[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(up, down)).astype(np.float32))


def make_tracks(root, n, seed):
    path = os.path.join(root, "logmel.npy")
    meta = os.path.join(root, "tags.json")
    if not os.path.exists(meta):
        os.makedirs(root, exist_ok=True)
        rng = np.random.default_rng(seed)
        length = HOP * (FRAMES + 64)
        t = np.arange(length) / SR
        mel, window = mel_matrix(), torch.hann_window(N_FFT)
        out, tags = [], []
        for i in range(n):
            chosen = rng.choice(N_TAGS, rng.integers(1, 4), replace=False)
            x = rng.normal(0, 0.2, length)
            for k in chosen:
                x += np.sin(2 * np.pi * 110 * 2 ** (k / 3) * t + rng.uniform(0, 6)) * (0.4 + 0.3 * np.sin(2 * np.pi * (1 + k) * t))
            wave = torch.from_numpy(x.astype(np.float32)) * 0.2
            spec = torch.stft(wave, N_FFT, HOP, window=window, return_complex=True).abs().square()
            logmel = torch.log(mel @ spec + 1e-5)
            out.append(((logmel - logmel.mean()) / logmel.std()).numpy())
            tags.append([int(k) for k in chosen])
        np.save(path, np.stack(out))
        with open(meta, "w") as f:
            json.dump(tags, f)
    with open(meta) as f:
        return np.load(path, mmap_mode="r"), json.load(f)


class TrackDataset(Dataset):
    def __init__(self, logmel, tags):
        self.logmel, self.tags = logmel, tags

    def __len__(self):
        return len(self.logmel)

    def __getitem__(self, i):
        start = np.random.randint(self.logmel.shape[2] - FRAMES)
        x = self.logmel[i, :, start:start + FRAMES].copy()
        f0 = np.random.randint(N_MELS - 8)
        x[f0:f0 + 8] = 0.0
        target = torch.zeros(N_TAGS)
        target[self.tags[i]] = 1.0
        return torch.from_numpy(x), target


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.down(F.relu(self.up(self.n2(x))))


class Tagger(nn.Module):
    def __init__(self, dim, depth, heads):
        super().__init__()
        self.patch = nn.Linear(16 * 16, dim)
        self.pos = nn.Parameter(torch.randn(1, (N_MELS // 16) * 16, dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, N_TAGS)

    def forward(self, x):
        B = x.shape[0]
        x = x.view(B, N_MELS // 16, 16, 16, 16).permute(0, 1, 3, 2, 4).reshape(B, -1, 256)
        x = self.patch(x) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class Ema:
    def __init__(self, model, decay=0.999):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.lerp_(p, 1 - self.decay)


@torch.no_grad()
def evaluate(model, loader):
    hit, total = 0.0, 0
    for x, y in loader:
        top = model(x).argmax(1, keepdim=True)
        hit += y.gather(1, top).sum().item()
        total += len(x)
    return hit / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default=os.path.join(tempfile.gettempdir(), "tag_transformer"))
    ap.add_argument("--tracks", type=int, default=400)
    ap.add_argument("--dim", type=int, default=160)
    ap.add_argument("--depth", type=int, default=2)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--eval-every", type=int, default=200)
    ap.add_argument("--seconds", type=float, default=75.0)
    args = ap.parse_args()

    torch.manual_seed(0)
    np.random.seed(0)
    logmel, tags = make_tracks(args.root, args.tracks, 3)
    cut = args.tracks - 32
    train = DataLoader(TrackDataset(logmel[:cut], tags[:cut]), args.batch_size, shuffle=True, drop_last=True, num_workers=0)
    valid = DataLoader(TrackDataset(logmel[cut:], tags[cut:]), args.batch_size, num_workers=0)

    model = Tagger(args.dim, args.depth, args.heads)
    ema = Ema(model)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    step, epoch, t0 = 0, 0, time.time()
    with open(os.path.join(args.root, "log.csv"), "w", newline="") as f:
        writer = csv.writer(f)
        while time.time() - t0 < args.seconds:
            for x, y in train:
                loss = F.binary_cross_entropy_with_logits(model(x), y)
                opt.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                ema.update(model)
                step += 1
                writer.writerow([step, epoch, loss.item(), norm.item(), opt.param_groups[0]["lr"]])
                f.flush()
                print(f"step {step} loss {loss.item():.4f} ({step / (time.time() - t0):.2f}/s)", flush=True)
                if step % args.eval_every == 0:
                    print(f"step {step} top-1 {evaluate(ema.module, valid):.3f}", flush=True)
                    torch.save(ema.module.state_dict(), os.path.join(args.root, "ema.pt"))
                if time.time() - t0 >= args.seconds:
                    break
            epoch += 1
    print(f"done: {step} steps")


if __name__ == "__main__":
    main()
