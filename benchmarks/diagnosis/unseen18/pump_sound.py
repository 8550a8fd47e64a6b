"""Anomaly detection on pump recordings: convolutional autoencoder on log-mel patches.

Trained on recordings of healthy pumps, tested on a mixture; the score of a
recording is the mean reconstruction error of its patches.
"""
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import signal
from scipy.io import wavfile
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.functional.classification import binary_auroc
from tqdm import tqdm

BASE = Path(tempfile.gettempdir()) / "pump_sound"
RATE = 16000
SECONDS = 5
N_FFT, HOP, N_MELS = 1024, 512, 64
PATCH = 64
EPOCHS = 60
PATIENCE = 10


def record_pump(rng, broken):
    t = np.arange(RATE * SECONDS) / RATE
    f0 = rng.uniform(46, 52)
    x = sum(rng.uniform(0.3, 1) / k * np.sin(2 * np.pi * k * f0 * t + rng.uniform(0, 6)) for k in range(1, 12))
    noise = rng.standard_normal(len(t))
    x = x + 0.4 * signal.lfilter([1.0], [1.0, -0.9], noise)
    x = x * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(0.3, 1.0) * t))
    if broken:
        knocks = (np.sin(2 * np.pi * rng.uniform(6, 9) * t) > 0.98) * rng.standard_normal(len(t))
        b, a = signal.butter(2, [2000, 4500], btype="band", fs=RATE)
        x = x + rng.uniform(0.8, 2.5) * signal.lfilter(b, a, knocks)
    return (x / np.abs(x).max() * 0.6 * 32767).astype(np.int16)


def make_recordings():
    rng = np.random.default_rng(17)
    rows = []
    (BASE / "wav").mkdir(parents=True, exist_ok=True)
    for i in range(480):
        part = "train" if i < 360 else "test"
        broken = int(part == "test" and i % 2 == 0)
        name = f"pump_{i:04d}.wav"
        wavfile.write(BASE / "wav" / name, RATE, record_pump(rng, broken))
        rows.append((name, part, broken))
    pd.DataFrame(rows, columns=["file", "part", "broken"]).to_csv(BASE / "recordings.csv", index=False)


def mel_matrix():
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = 700 * (10 ** (np.linspace(mel(30), mel(RATE / 2), N_MELS + 2) / 2595) - 1)
    freqs = np.linspace(0, RATE / 2, N_FFT // 2 + 1)
    up = (freqs - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freqs) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down))


def log_mel(path, mels):
    rate, x = wavfile.read(path)
    assert rate == RATE
    _, _, spec = signal.stft(x / 32768.0, nperseg=N_FFT, noverlap=N_FFT - HOP)
    return np.log(mels @ (np.abs(spec) ** 2) + 1e-9).astype(np.float32)


def patches(spec, step):
    return np.stack([spec[:, i:i + PATCH] for i in range(0, spec.shape[1] - PATCH + 1, step)])


class AutoEncoder(nn.Module):
    def __init__(self, code=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.BatchNorm2d(128), nn.ReLU(),
            nn.Flatten(), nn.Linear(128 * 8 * 8, code))
        self.expand = nn.Linear(code, 128 * 8 * 8)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1))

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(self.expand(z).view(-1, 128, 8, 8))


def test_scores(model, specs, mean, std):
    model.eval()
    scores = []
    with torch.no_grad():
        for spec in specs:
            x = torch.from_numpy((patches(spec, PATCH // 2) - mean) / std).unsqueeze(1)
            scores.append(((model(x) - x) ** 2).mean().item())
    return torch.tensor(scores)


def main():
    torch.manual_seed(4)
    if not (BASE / "recordings.csv").exists():
        make_recordings()
    table = pd.read_csv(BASE / "recordings.csv")
    mels = mel_matrix()
    cache = BASE / "log_mel.npy"
    if not cache.exists():
        np.save(cache, np.stack([log_mel(BASE / "wav" / f, mels) for f in tqdm(table["file"], desc="features")]))
    table["spec"] = list(np.load(cache))
    train = np.concatenate([patches(s, 8) for s in table.loc[table["part"] == "train", "spec"]])
    mean, std = train.mean(), train.std()
    x_train = torch.from_numpy((train - mean) / std).unsqueeze(1)
    test = table[table["part"] == "test"]
    labels = torch.tensor(test["broken"].values)
    print("training patches:", tuple(x_train.shape))

    loader = DataLoader(TensorDataset(x_train), batch_size=32, shuffle=True, drop_last=True)
    model = AutoEncoder().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    best, waited = np.inf, 0
    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for (xb,) in tqdm(loader, desc=f"epoch {epoch}"):
            noisy = xb + 0.1 * torch.randn_like(xb)
            loss = nn.functional.mse_loss(model(noisy), xb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        epoch_loss = float(np.mean(losses))
        scheduler.step(epoch_loss)
        auc = binary_auroc(test_scores(model, test["spec"], mean, std), labels).item()
        print(f"epoch {epoch}: mse {epoch_loss:.4f}  test AUC {auc:.3f}")
        if epoch_loss < best - 1e-4:
            best, waited = epoch_loss, 0
            torch.save({"model": model.state_dict(), "mean": mean, "std": std}, BASE / "autoencoder.pt")
        else:
            waited += 1
            if waited == PATIENCE:
                break


if __name__ == "__main__":
    main()
