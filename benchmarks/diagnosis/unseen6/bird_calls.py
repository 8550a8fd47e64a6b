"""Species recogniser for synthetic bird calls (44.1 kHz field recordings)."""
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy import signal
from scipy.io import wavfile
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_species: int = 6
    clips_per_species: int = 40
    seconds: float = 3.0
    crop_frames: int = 96
    native_rate: int = 44100
    rate: int = 16000
    n_fft: int = 512
    hop: int = 160
    n_mels: int = 48
    batch: int = 16
    epochs: int = 80
    lr: float = 1e-3
    workers: int = 1
    seed: int = 3


def synth_call(species, cfg, rng):
    """A few chirps with a species-specific contour, over pink-ish wind noise."""
    n = int(cfg.seconds * cfg.native_rate)
    t = np.arange(n) / cfg.native_rate
    base = 1500 + 700 * species + rng.normal(0, 60)
    sweep = [900, -700, 0, 1400, -1200, 400][species % 6]
    rate = 3 + species
    phase_in_chirp = (t * rate + rng.random()) % 1.0
    env = np.exp(-((phase_in_chirp - 0.35) / 0.15) ** 2)
    freq = base + sweep * phase_in_chirp + 80 * np.sin(2 * np.pi * 30 * t)
    call = env * np.sin(2 * np.pi * np.cumsum(freq) / cfg.native_rate)
    wind = signal.lfilter([1], [1, -0.97], rng.normal(0, 0.02, n))
    return (0.4 * call * rng.uniform(0.3, 1.0) + wind).astype(np.float32)


def record_field_trip(folder, cfg):
    rng = np.random.default_rng(cfg.seed)
    listing = []
    for s in range(cfg.n_species):
        for k in range(cfg.clips_per_species):
            path = os.path.join(folder, f"sp{s:02d}_{k:03d}.wav")
            x = synth_call(s, cfg, rng)
            wavfile.write(path, cfg.native_rate, (np.clip(x, -1, 1) * 32767).astype(np.int16))
            listing.append((path, s))
    return listing


def mel_bank(cfg):
    def to_mel(f):
        return 2595 * np.log10(1 + f / 700)

    def from_mel(m):
        return 700 * (10 ** (m / 2595) - 1)

    edges = from_mel(np.linspace(to_mel(50), to_mel(cfg.rate / 2), cfg.n_mels + 2))
    freqs = np.fft.rfftfreq(cfg.n_fft, 1 / cfg.rate)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    up = (freqs - lo) / (mid - lo)
    down = (hi - freqs) / (hi - mid)
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


class CallDataset(Dataset):
    def __init__(self, listing, cfg):
        self.listing = listing
        self.cfg = cfg
        self.window = np.hanning(cfg.n_fft).astype(np.float32)
        self.bank = mel_bank(cfg)

    def __len__(self):
        return len(self.listing)

    def read(self, path):
        rate, pcm = wavfile.read(path)
        x = pcm.astype(np.float32) / 32768.0
        n = int(len(x) * self.cfg.rate / rate)
        return signal.resample(x, n).astype(np.float32)

    def log_mel(self, x):
        c = self.cfg
        frames = []
        for start in range(0, len(x) - c.n_fft + 1, c.hop):
            seg = x[start:start + c.n_fft] * self.window
            power = np.abs(np.fft.rfft(seg)) ** 2
            frames.append([float(np.dot(band, power)) for band in self.bank])
        return np.log(np.array(frames).T + 1e-6)

    def __getitem__(self, i):
        path, species = self.listing[i]
        x = self.read(path)
        x = np.roll(x, np.random.randint(len(x)))
        x = x + np.random.normal(0, 0.003, len(x)).astype(np.float32)
        m = self.log_mel(x)
        at = np.random.randint(m.shape[1] - self.cfg.crop_frames)
        m = m[:, at:at + self.cfg.crop_frames]
        return torch.from_numpy(m.astype(np.float32))[None], species


class CallNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        layers, c = [], 1
        for out in (24, 48, 64):
            layers += [nn.Conv2d(c, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
            c = out
        self.body = nn.Sequential(*layers)
        self.rnn = nn.GRU(c * (cfg.n_mels // 8), 64, batch_first=True)
        self.head = nn.Linear(64, cfg.n_species)

    def forward(self, m):
        m = (m - m.mean((2, 3), keepdim=True)) / (m.std((2, 3), keepdim=True) + 1e-5)
        h = self.body(m)
        h = h.permute(0, 3, 1, 2).flatten(2)
        out, _ = self.rnn(h)
        return self.head(out.mean(1))


def run(cfg):
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as folder:
        listing = record_field_trip(folder, cfg)
        loader = DataLoader(CallDataset(listing, cfg), batch_size=cfg.batch, shuffle=True,
                            num_workers=cfg.workers, persistent_workers=True, drop_last=True)
        net = CallNet(cfg)
        opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
        lossf = nn.CrossEntropyLoss()
        seen, began = 0, time.perf_counter()
        for epoch in range(1, cfg.epochs + 1):
            losses, hits, count = [], 0, 0
            for mels, species in loader:
                opt.zero_grad(set_to_none=True)
                logits = net(mels)
                loss = lossf(logits, species)
                loss.backward()
                opt.step()
                losses.append(loss.item())
                hits += (logits.argmax(1) == species).sum().item()
                count += len(species)
                seen += len(species)
            speed = seen / (time.perf_counter() - began)
            print(f"[{epoch:3d}] loss={np.mean(losses):.4f} acc={hits / count:.3f} clips/s={speed:.1f}", flush=True)


if __name__ == "__main__":
    run(Config())
