"""Bird-call classification from field recordings (wav)."""
import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from scipy.io import wavfile
from scipy.ndimage import median_filter
from scipy.signal import stft
from torch.utils.data import DataLoader, Dataset

RATE = 16000
CLIP = 2            # seconds given to the network
FRAMES = 124
SPECIES = 6


def record(folder, n=200):
    """Synthetic soundscapes: mostly short calls, now and then a recorder left running."""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(9)
    for k in range(n):
        species = int(rng.integers(SPECIES))
        seconds = 66 if k % 20 == 3 else 2.1
        f = os.path.join(folder, f"{k:04d}_{species}.wav")
        if os.path.exists(f):
            continue
        t = np.arange(int(seconds * RATE), dtype=np.float32) / RATE
        tone = np.sin(2 * np.pi * (900 + 600 * species) * t + 3 * np.sin(2 * np.pi * (3 + species) * t))
        wave = 0.4 * tone + 0.15 * rng.standard_normal(len(t), dtype=np.float32)
        wavfile.write(f + ".part", RATE, (wave * 12000).astype(np.int16))
        os.replace(f + ".part", f)


def mel_matrix(bins, bands=48):
    hz = np.linspace(0, RATE / 2, bins)
    mel = 2595 * np.log10(1 + hz / 700)
    centers = np.linspace(mel[1], mel[-1], bands + 2)
    width = centers[1] - centers[0]
    return np.maximum(0, 1 - np.abs(mel[None] - centers[1:-1, None]) / width).astype(np.float32)


class Calls(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".wav"))
        self.mel = mel_matrix(257)

    def __len__(self):
        return len(self.files)

    def spectrogram(self, wave):
        _, _, z = stft(wave.astype(np.float32) / 32768, RATE, nperseg=512, noverlap=256)
        m = np.log1p(100 * self.mel @ np.abs(z))
        return m - median_filter(m, size=(1, 5))

    def __getitem__(self, i):
        _, wave = wavfile.read(self.files[i])
        spec = self.spectrogram(wave)
        start = np.random.randint(0, spec.shape[1] - FRAMES + 1)
        spec = spec[:, start:start + FRAMES].astype(np.float32)
        label = int(self.files[i].rsplit("_", 1)[1][:-4])
        return torch.from_numpy(spec)[None], label


def network():
    def conv(i, o):
        return [nn.Conv2d(i, o, 3, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*conv(1, 8), *conv(8, 16), *conv(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(32, SPECIES))


def train(folder, epochs=400, batch=16):
    torch.manual_seed(0)
    record(folder)
    loader = DataLoader(Calls(folder), batch_size=batch, shuffle=True, num_workers=2, persistent_workers=True,
                        prefetch_factor=2, drop_last=True)
    net = network()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    began, step = time.time(), 0
    for epoch in range(epochs):
        right = 0
        for x, y in loader:
            logits = net(x)
            loss = nn.functional.cross_entropy(logits, y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (logits.argmax(1) == y).sum().item()
            step += 1
            if step % 5 == 0:
                print(f"{step:5d} loss {loss.item():.3f} {step * batch / (time.time() - began):6.1f} clips/s", flush=True)
        print(f"== epoch {epoch}: train accuracy {right / (len(loader) * batch):.3f}")


if __name__ == "__main__":
    train(sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.gettempdir(), "bird_soundscapes"))
