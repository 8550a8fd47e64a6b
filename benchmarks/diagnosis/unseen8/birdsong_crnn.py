# Bird call recognition, chapter 4 experiments (short clips, weak labels)
# NOTE to self: PCEN did not help, keep log-mel. Multi-resolution stack = +1.3 mAP.
import math
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "birdsong_crnn")
SR = 22050
SECONDS = 4
N_CLIPS = 900
SPECIES = ["parus_major", "turdus_merula", "erithacus", "fringilla", "sylvia", "strix", "cuculus", "apus"]
N_MELS = 48
RESOLUTIONS = [(512, 441), (1024, 441), (2048, 441)]
BATCH = 16
EPOCHS = 400
LR = 1.5e-3
CPU_THREADS = 4


def synth_call(kind, rng):
    """A crude call: a few chirped syllables, species decides band, sweep and rhythm."""
    n = SR * SECONDS
    out = np.zeros(n, dtype=np.float32)
    base = 700 + 650 * kind + rng.normal(0, 40)
    sweep = (-1) ** kind * (250 + 90 * kind)
    gap = 0.12 + 0.05 * (kind % 4)
    pos = rng.uniform(0, 0.6)
    while pos < SECONDS - 0.4:
        dur = rng.uniform(0.07, 0.16)
        t = np.arange(int(dur * SR)) / SR
        f = base + sweep * t / dur
        syll = np.sin(2 * np.pi * np.cumsum(f) / SR) * np.hanning(len(t))
        i = int(pos * SR)
        out[i:i + len(t)] += (rng.uniform(0.3, 1.0) * syll).astype(np.float32)
        pos += dur + gap * rng.uniform(0.8, 1.3)
    out += rng.normal(0, 0.08, n).astype(np.float32)
    return (out / np.abs(out).max() * 28000).astype(np.int16)


def prepare():
    os.makedirs(ROOT, exist_ok=True)
    wav, lab = os.path.join(ROOT, "clips.npy"), os.path.join(ROOT, "labels.npy")
    if not os.path.exists(lab):
        print("rendering clips ...")
        rng = np.random.default_rng(4)
        labels = rng.integers(0, len(SPECIES), N_CLIPS)
        clips = np.stack([synth_call(int(k), rng) for k in labels])
        np.save(wav, clips)
        np.save(lab, labels)
    return wav, lab


def mel_bank(n_fft):
    hz2mel = lambda h: 2595 * math.log10(1 + h / 700)
    edges = 700 * (10 ** (np.linspace(hz2mel(150), hz2mel(10500), N_MELS + 2) / 2595) - 1)
    freqs = np.linspace(0, SR / 2, n_fft // 2 + 1)
    fb = np.zeros((N_MELS, len(freqs)), dtype=np.float32)
    for m in range(N_MELS):
        lo, mid, hi = edges[m:m + 3]
        fb[m] = np.clip(np.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)), 0, None)
    return fb


class BirdClips(Dataset):
    def __init__(self, wav, lab, idx, train):
        self.wav = wav
        self.clips = None
        self.labels = np.load(lab)
        self.idx = idx
        self.train = train
        self.banks = [mel_bank(n) for n, _ in RESOLUTIONS]
        self.windows = [torch.hann_window(n) for n, _ in RESOLUTIONS]

    def __len__(self):
        return len(self.idx)

    def clip(self, j):
        if self.clips is None:
            self.clips = np.load(self.wav, mmap_mode="r")
        return torch.from_numpy(np.array(self.clips[j])).float() / 32768

    def augment(self, x):
        x = torch.roll(x, random.randrange(len(x)))
        x = x * random.uniform(0.5, 1.5)
        x = x + random.uniform(0, 0.02) * torch.randn_like(x)
        x = x + random.uniform(0, 0.1) * self.clip(random.choice(self.idx))
        return torch.tanh(1.5 * x)

    def __getitem__(self, i):
        j = self.idx[i]
        x = self.clip(j)
        if self.train:
            x = self.augment(x)
        x = torch.cat([x[:1], x[1:] - 0.97 * x[:-1]])
        stack = []
        for (n_fft, hop), fb, win in zip(RESOLUTIONS, self.banks, self.windows):
            spec = torch.stft(x, n_fft, hop, window=win, return_complex=True)
            power = (spec.real ** 2 + spec.imag ** 2).numpy()
            mel = torch.from_numpy(np.log(fb @ power + 1e-6))
            stack.append((mel - mel.mean(1, keepdim=True)) / (mel.std() + 1e-4))
        feat = torch.stack(stack)
        if self.train:
            f0, t0 = random.randrange(N_MELS - 6), random.randrange(feat.shape[2] - 20)
            feat[:, f0:f0 + 6] = 0
            feat[:, :, t0:t0 + 20] = 0
        return feat, int(self.labels[j])


def seed_worker(worker_id):
    s = torch.initial_seed() % 2 ** 31
    random.seed(s)
    np.random.seed(s)
    torch.set_num_threads(CPU_THREADS)
    threadpool_limits(CPU_THREADS)


class CRNN(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        chans = [3, 8, 16, 32]
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, stride=(2, s)), nn.BatchNorm2d(b), nn.ReLU())
            for a, b, s in zip(chans[:-1], chans[1:], (4, 2, 1))
        )
        self.gru = nn.GRU(32 * N_MELS // 8, 48, batch_first=True, bidirectional=True)
        self.att = nn.Linear(96, 1)
        self.out = nn.Linear(96, n_out)

    def forward(self, x):
        for c in self.convs:
            x = c(x)
        x = x.permute(0, 3, 1, 2).flatten(2)
        h, _ = self.gru(x)
        w = torch.softmax(self.att(h), dim=1)
        return self.out((w * h).sum(1))


if __name__ == "__main__":
    torch.manual_seed(11)
    random.seed(11)
    np.random.seed(11)
    wav, lab = prepare()
    order = np.random.permutation(N_CLIPS)
    val_idx, train_idx = order[:60], order[60:]
    train = DataLoader(BirdClips(wav, lab, train_idx, True), batch_size=BATCH, shuffle=True, drop_last=True,
                       num_workers=2, worker_init_fn=seed_worker, persistent_workers=True, prefetch_factor=4,
                       multiprocessing_context="spawn")
    net = CRNN(len(SPECIES))
    opt = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=1e-4)
    steps_per_epoch = len(train)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, LR, total_steps=EPOCHS * steps_per_epoch, pct_start=0.02)
    print("params:", sum(p.numel() for p in net.parameters()), "steps/epoch:", steps_per_epoch)
    avg, step = None, 0
    for ep in range(EPOCHS):
        t0 = time.time()
        net.train()
        for feat, y in train:
            logits = net(feat)
            loss = F.cross_entropy(logits, y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 3.0)
            opt.step()
            sched.step()
            avg = loss.item() if avg is None else 0.97 * avg + 0.03 * loss.item()
            if step % 20 == 0:
                acc = (logits.argmax(1) == y).float().mean()
                print(f"[{ep:03d}] step {step:5d} loss {avg:.4f} acc {acc:.2f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
            step += 1
        if ep % 20 == 19:
            torch.save(net.state_dict(), os.path.join(ROOT, "last.pt"))
        print(f"epoch {ep} took {time.time() - t0:.1f}s")
