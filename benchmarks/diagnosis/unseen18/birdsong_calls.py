"""Species recognition in short field recordings (passive acoustic monitoring).

Every recording is a two second clip at 16 kHz, labelled with the species that
calls in it.  A small CNN works on log-mel spectrograms.
"""
import csv
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.io import wavfile
from scipy.signal import chirp
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAUROC, MulticlassAveragePrecision, MulticlassF1Score

ROOT = os.path.join(tempfile.gettempdir(), "birdsong_calls")
RATE = 16000
SECONDS = 2
SPECIES = ["wren", "robin", "chiffchaff", "blackcap", "dunnock", "goldcrest",
           "nuthatch", "siskin", "linnet", "serin", "whinchat", "stonechat"]


def make_recordings(n=2400, seed=4):
    os.makedirs(os.path.join(ROOT, "wav"), exist_ok=True)
    rng = np.random.default_rng(seed)
    base = rng.uniform(1500, 6000, len(SPECIES))
    sweep = rng.uniform(-1200, 1800, len(SPECIES))
    length = rng.uniform(0.05, 0.25, len(SPECIES))
    t = np.arange(RATE * SECONDS) / RATE
    rows = []
    for i in range(n):
        k = int(rng.integers(len(SPECIES)))
        signal = np.zeros_like(t)
        for _ in range(rng.integers(2, 7)):
            m = int(RATE * length[k] * rng.uniform(0.8, 1.2))
            start = int(rng.integers(0, len(t) - m))
            f0 = base[k] * rng.uniform(0.93, 1.07)
            tone = chirp(t[:m], f0, t[m], f0 + sweep[k]) * np.hanning(m)
            signal[start:start + m] += rng.uniform(0.1, 0.6) * tone
        signal += rng.normal(0, rng.uniform(0.05, 0.3), len(t))
        signal = signal / np.abs(signal).max() * 0.8
        name = f"rec_{i:05d}.wav"
        wavfile.write(os.path.join(ROOT, "wav", name), RATE, (signal * 32767).astype(np.int16))
        rows.append((name, SPECIES[k], "val" if i % 6 == 0 else "train"))
    with open(os.path.join(ROOT, "annotations.csv"), "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["file", "species", "split"])
        w.writerows(rows)


def mel_matrix(n_mels=48, n_fft=512, fmin=300.0, fmax=8000.0):
    def to_mel(f):
        return 2595 * np.log10(1 + f / 700)

    edges = 700 * (10 ** (np.linspace(to_mel(fmin), to_mel(fmax), n_mels + 2) / 2595) - 1)
    freqs = np.linspace(0, RATE / 2, n_fft // 2 + 1)
    up = (freqs[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freqs[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.tensor(np.maximum(0, np.minimum(up, down)), dtype=torch.float32)


class Recordings(Dataset):
    def __init__(self, split):
        with open(os.path.join(ROOT, "annotations.csv")) as f:
            self.rows = [r for r in csv.DictReader(f) if r["split"] == split]
        self.train = split == "train"
        self.window = torch.hann_window(512)
        self.mel = mel_matrix()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        _, wave = wavfile.read(os.path.join(ROOT, "wav", row["file"]))
        wave = wave.astype(np.float32) / 32768
        if self.train:
            wave = np.roll(wave, np.random.randint(len(wave)))
            wave = wave * np.random.uniform(0.5, 1.0)
        spec = torch.stft(torch.as_tensor(wave, dtype=torch.float32), 512, 256, window=self.window,
                          return_complex=True).abs() ** 2
        logmel = torch.log(self.mel @ spec + 1e-5)
        return logmel[None], SPECIES.index(row["species"])


class CallNet(nn.Module):
    def __init__(self, n_classes, width=12):
        super().__init__()
        layers, c = [], 1
        for k in (1, 2, 4, 4):
            layers += [nn.Conv2d(c, width * k, 3, padding=1), nn.BatchNorm2d(width * k), nn.ReLU(), nn.MaxPool2d(2)]
            c = width * k
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(c, n_classes))

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def make_metrics():
    n = len(SPECIES)
    return {"auroc": MulticlassAUROC(n), "mAP": MulticlassAveragePrecision(n), "f1": MulticlassF1Score(n)}


def validate(model, loader):
    model.eval()
    metrics = make_metrics()
    with torch.no_grad():
        for x, y in loader:
            p = model(x).softmax(1)
            for m in metrics.values():
                m.update(p, y)
    model.train()
    return {k: float(m.compute()) for k, m in metrics.items()}


def main():
    if not os.path.exists(os.path.join(ROOT, "annotations.csv")):
        make_recordings()
    torch.manual_seed(0)
    train = DataLoader(Recordings("train"), batch_size=16, shuffle=True, drop_last=True)
    val = DataLoader(Recordings("val"), batch_size=32)
    model = CallNet(len(SPECIES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    metrics = make_metrics()
    log = open(os.path.join(ROOT, "training_log.csv"), "w", newline="")
    writer = csv.writer(log)
    writer.writerow(["epoch", "step", "loss"] + list(metrics))

    for epoch in range(60):
        for m in metrics.values():
            m.reset()
        for step, (x, y) in enumerate(train):
            logits = model(x)
            loss = F.cross_entropy(logits, y, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            p = logits.detach().softmax(1)
            for m in metrics.values():
                m.update(p, y)
            scores = [float(m.compute()) for m in metrics.values()]
            writer.writerow([epoch, step, loss.item()] + scores)
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} auroc {scores[0]:.3f} f1 {scores[2]:.3f}", flush=True)
        log.flush()
        print(f"epoch {epoch} validation", {k: round(v, 3) for k, v in validate(model, val).items()}, flush=True)


if __name__ == "__main__":
    main()
