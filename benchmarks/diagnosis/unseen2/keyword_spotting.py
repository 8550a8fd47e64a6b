"""Keyword spotting on 1 s clips (8 kHz), log-mel features computed on the fly."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SR, N_FFT, HOP, N_MELS = 8000, 256, 80, 64
WORDS = 10
MEAN, STD = 1.0, 2.0


def mel_filters():
    """(n_mels, n_fft // 2 + 1) triangular filters"""
    hz = lambda m: 700 * (10 ** (m / 2595) - 1)
    top = 2595 * np.log10(1 + SR / 2 / 700)
    pts = hz(np.linspace(0, top, N_MELS + 2))
    freqs = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    up = (freqs[None] - pts[:-2, None]) / (pts[1:-1] - pts[:-2])[:, None]
    down = (pts[2:, None] - freqs[None]) / (pts[2:] - pts[1:-1])[:, None]
    return torch.tensor(np.maximum(0, np.minimum(up, down)), dtype=torch.float32)


class Clips(Dataset):
    def __init__(self, n=3200, seed=0):
        rng = np.random.default_rng(seed)
        self.words = rng.integers(0, WORDS, n)
        t = np.arange(SR, dtype=np.float32) / SR
        self.waves = np.empty((n, SR), np.int16)
        for i, w in enumerate(self.words):
            f = 300 + 150 * w + rng.uniform(-30, 30)
            self.waves[i] = 8000 * np.sin(2 * np.pi * f * t * (1 + 0.3 * t)) * np.hanning(SR)
        self.mel = mel_filters()
        self.window = torch.hann_window(N_FFT)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        wave = torch.from_numpy(self.waves[i]).float() / 32768
        wave = wave.roll(int(torch.randint(-800, 800, (1,))))
        wave = wave + 0.02 * torch.randn(SR)
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True)
        logmel = torch.log1p(self.mel @ spec.abs().square_())
        return {"mel": logmel.numpy(), "word": int(self.words[i])}


def collate(samples):
    mels, words = [], []
    for s in samples:
        rows = []
        for row in s["mel"]:
            rows.append([(float(v) - MEAN) / STD for v in row])
        mels.append(rows)
        words.append(s["word"])
    return torch.tensor(mels, dtype=torch.float32), torch.tensor(words)


def conv_bn(cin, cout, k, stride=1):
    return nn.Sequential(nn.Conv1d(cin, cout, k, stride, k // 2, bias=False), nn.BatchNorm1d(cout), nn.ReLU())


def main():
    torch.manual_seed(0)
    ds = Clips()
    loader = DataLoader(ds, batch_size=32, shuffle=True, drop_last=True, collate_fn=collate,
                        num_workers=1, persistent_workers=True)
    model = nn.Sequential(conv_bn(N_MELS, 64, 5), conv_bn(64, 64, 3, 2), conv_bn(64, 128, 3, 2),
                          nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, WORDS))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(150):
        for mel, word in loader:
            loss = criterion(model(mel), word)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch:3d}  step {step:5d}  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
