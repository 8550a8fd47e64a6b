"""Species recognition from short call recordings (log-mel CRNN)."""
from __future__ import annotations

import argparse
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("frogcalls")


@dataclass(frozen=True)
class Audio:
    rate: int = 8000
    seconds: float = 1.0
    n_fft: int = 256
    hop: int = 80
    bands: int = 48

    @property
    def samples(self) -> int:
        return int(self.rate * self.seconds)


SPECIES = 10
CLIPS = 4000


def synthesize(path: Path, audio: Audio, seed: int) -> None:
    rng = np.random.default_rng(seed)
    carrier = rng.uniform(400, 3000, SPECIES)
    pulse = rng.uniform(4, 30, SPECIES)
    chirp = rng.uniform(-600, 600, SPECIES)
    t = np.arange(audio.samples, dtype=np.float32) / audio.rate
    part = path.with_suffix(".part")
    with h5py.File(part, "w") as f:
        wav = f.create_dataset("wav", (CLIPS, audio.samples), "int16", chunks=(1, audio.samples))
        lab = f.create_dataset("label", (CLIPS,), "int64")
        for i in range(CLIPS):
            s = int(rng.integers(SPECIES))
            f0 = carrier[s] * rng.normal(1, 0.05)
            phase = 2 * np.pi * (f0 * t + 0.5 * chirp[s] * t**2)
            gate = np.clip(np.sin(2 * np.pi * pulse[s] * rng.normal(1, 0.05) * t), 0, 1)
            x = rng.uniform(0.2, 0.8) * gate * np.sin(phase) + 0.15 * rng.standard_normal(audio.samples)
            wav[i] = (np.clip(x, -1, 1) * 32000).astype(np.int16)
            lab[i] = s
    os.replace(part, path)


def mel_matrix(audio: Audio) -> torch.Tensor:
    def mel(f):
        return 2595 * np.log10(1 + f / 700)

    freqs = np.linspace(0, audio.rate / 2, audio.n_fft // 2 + 1)
    edges = 700 * (10 ** (np.linspace(mel(60), mel(audio.rate / 2), audio.bands + 2) / 2595) - 1)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    tri = np.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid))
    return torch.from_numpy(np.maximum(tri, 0)).float()


class Calls(Dataset):
    def __init__(self, path: Path, audio: Audio):
        self.path, self.audio = path, audio
        self.window = torch.hann_window(audio.n_fft)
        self.mel = mel_matrix(audio)
        self.file = None
        with h5py.File(path, "r") as f:
            self.labels = f["label"][:]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        x = torch.from_numpy(self.file["wav"][i].astype(np.float32) / 32768)
        x = torch.roll(x, int(torch.randint(self.audio.samples, ())))
        spec = torch.stft(x, self.audio.n_fft, self.audio.hop, window=self.window, return_complex=True)
        logmel = torch.log(self.mel @ spec.abs().square() + 1e-5)
        return (logmel + 5) / 3, int(self.labels[i])


class CRNN(nn.Module):
    def __init__(self, bands: int, width: int = 32):
        super().__init__()

        def stage(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))

        self.conv = nn.Sequential(stage(1, width), stage(width, 2 * width), stage(2 * width, 2 * width))
        self.rnn = nn.GRU(2 * width * (bands // 8), 96, batch_first=True, bidirectional=True)
        self.head = nn.Linear(192, SPECIES)

    def forward(self, x):
        h = self.conv(x[:, None]).permute(0, 3, 1, 2).flatten(2)
        return self.head(self.rnn(h)[0].amax(1))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=80)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--lr", type=float, default=7e-4)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--prefetch", type=int, default=4)
    ap.add_argument("--seed", type=int, default=2718)
    ap.add_argument("--log-every", type=int, default=50)
    opt = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(opt.seed)
    torch.set_num_threads(1)

    audio = Audio()
    folder = Path(tempfile.gettempdir()) / "frogcalls"
    folder.mkdir(exist_ok=True)
    path = folder / "calls.h5"
    if not path.exists():
        log.info("synthesizing %d clips", CLIPS)
        synthesize(path, audio, opt.seed)

    loader = DataLoader(
        Calls(path, audio),
        batch_size=opt.batch,
        shuffle=True,
        drop_last=True,
        num_workers=opt.workers,
        prefetch_factor=opt.prefetch,
        persistent_workers=True,
    )
    model = CRNN(audio.bands)
    optim = torch.optim.AdamW(model.parameters(), lr=opt.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(optim, opt.lr, total_steps=opt.epochs * len(loader))
    loss_sum, step = torch.zeros(()), 0
    for epoch in range(opt.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.05)
            optim.zero_grad(set_to_none=True)
            loss.backward()
            optim.step()
            sched.step()
            loss_sum += loss.detach()
            step += 1
            if step % opt.log_every == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss_sum.item() / opt.log_every)
                loss_sum.zero_()


if __name__ == "__main__":
    main()
