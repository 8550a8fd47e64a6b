"""Keyword spotting for a hands-free machine panel: ten commands, 1 s clips of 16 kHz audio in wav files.

No microphone data may leave the plant, so this public version trains on synthetic utterances (two or three formant-like
syllables per command in factory noise). The network is a small residual one over log-mel features.
"""
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.io import wavfile
from torch.utils.data import DataLoader, Dataset

ROOT = Path(tempfile.gettempdir()) / "machine_keywords"
RATE = 16000
COMMANDS = ["start", "stop", "faster", "slower", "open", "close", "left", "right", "reset", "light"]


def utter(rng, recipe):
    t = np.arange(RATE) / RATE
    clip = np.zeros(RATE)
    pitch = rng.uniform(90, 240)
    begin = rng.uniform(0.05, 0.3)
    for f1, f2, length in recipe:
        length = length * rng.uniform(0.8, 1.2)
        envelope = np.exp(-0.5 * ((t - begin - length / 2) / (length / 3)) ** 2)
        for h in range(1, 24):
            f = h * pitch
            gain = np.exp(-((f - f1) / 180) ** 2) + 0.7 * np.exp(-((f - f2) / 260) ** 2) + 0.02
            clip += gain * envelope * np.sin(2 * np.pi * f * t + rng.uniform(0, 6.28))
        begin += length
    clip = clip / np.abs(clip).max() * rng.uniform(0.2, 0.8)
    return clip + rng.normal(0, rng.uniform(0.005, 0.06), RATE)


def record_clips(per_command=200):
    listing = ROOT / "clips.json"
    if listing.exists():
        return json.loads(listing.read_text())
    rng = np.random.default_rng(9)
    clips = []
    for c, command in enumerate(COMMANDS):
        (ROOT / command).mkdir(parents=True, exist_ok=True)
        voice = np.random.default_rng(100 + c)
        recipe = [(voice.uniform(250, 850), voice.uniform(900, 2600), voice.uniform(0.12, 0.25)) for _ in range(2 + c % 2)]
        for k in range(per_command):
            clip = (utter(rng, recipe).clip(-1, 1) * 32767).astype(np.int16)
            wavfile.write(ROOT / command / f"{k:04d}.wav", RATE, clip)
            clips.append([f"{command}/{k:04d}.wav", c, "val" if k % 10 == 0 else "train"])
    listing.write_text(json.dumps(clips))
    return clips


class Clips(Dataset):
    def __init__(self, clips, split):
        self.clips = [(name, c) for name, c, s in clips if s == split]
        self.train = split == "train"

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        name, c = self.clips[i]
        _, pcm = wavfile.read(ROOT / name)
        wave = pcm.astype(np.float32) / 32768
        if self.train:
            wave = np.roll(wave, np.random.randint(-1600, 1600))
            wave = wave * np.random.uniform(0.6, 1.4)
        return torch.from_numpy(wave.astype(np.float32)), c


class LogMel(nn.Module):
    def __init__(self, n_fft=512, hop=160, bands=40):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        mel = np.linspace(2595 * np.log10(1 + 60 / 700), 2595 * np.log10(1 + 7600 / 700), bands + 2)
        hz = 700 * (10 ** (mel / 2595) - 1)
        freqs = np.linspace(0, RATE / 2, n_fft // 2 + 1)
        rising = (freqs[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
        falling = (hz[2:, None] - freqs[None]) / (hz[2:] - hz[1:-1])[:, None]
        self.register_buffer("bank", torch.tensor(np.maximum(0, np.minimum(rising, falling)), dtype=torch.float32))
        self.register_buffer("window", torch.hann_window(n_fft))

    @torch.no_grad()
    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True).abs().square()
        feats = (self.bank @ spec + 1e-6).log()
        return (feats - feats.mean((1, 2), keepdim=True)) / feats.std((1, 2), keepdim=True)


class SpecMask(nn.Module):
    def forward(self, feats):
        if self.training:
            feats = feats.clone()
            f, t = np.random.randint(0, 34), np.random.randint(0, 85)
            feats[:, f:f + 6] = 0
            feats[:, :, t:t + 15] = 0
        return feats


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))


class KeywordNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(LogMel(), SpecMask())
        self.stem = nn.Conv2d(1, width, 3, stride=(2, 2), padding=1, bias=False)
        self.blocks = nn.Sequential(*[Residual(width, d) for d in (1, 1, 2, 2, 4)])
        self.head = nn.Linear(width, len(COMMANDS))

    def forward(self, wave):
        x = self.stem(self.features(wave).unsqueeze(1))
        return self.head(self.blocks(x).mean((2, 3)))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = sum((model(w).argmax(1) == c).sum().item() for w, c in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(0)
    clips = record_clips()
    train_loader = DataLoader(Clips(clips, "train"), batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(Clips(clips, "val"), batch_size=50)
    model = KeywordNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    epochs = 60
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(train_loader))
    step, started = 0, time.time()
    for epoch in range(epochs):
        for wave, command in train_loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(wave), command, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {step / (time.time() - started):.2f} steps/s", flush=True)
        if epoch % 5 == 4:
            print(f"epoch {epoch}: accuracy {validate(model, val_loader):.3f}", flush=True)
            torch.save(model.state_dict(), ROOT / "keyword_net.pt")


if __name__ == "__main__":
    main()
