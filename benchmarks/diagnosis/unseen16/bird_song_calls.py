"""Recognise bird species from three-second field recordings (log-mel spectrograms and a small CNN)."""
import csv
import tempfile
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from scipy.io import wavfile
from scipy.signal import resample_poly, stft
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

ROOT = Path(tempfile.gettempdir()) / "bird_song_calls"
SPECIES = ["wren", "robin", "blackcap", "chiffchaff", "nuthatch", "siskin", "dunnock", "serin"]
RECORDED_RATE = 44100
RATE = 22050
SECONDS = 3
N_FFT, HOP, N_MELS = 1024, 256, 64


def synthesise_call(rng, species):
    """A train of chirps whose pitch, sweep and rhythm depend on the species."""
    t = np.arange(RECORDED_RATE * SECONDS) / RECORDED_RATE
    audio = rng.normal(0, 0.03, t.size)
    pitch, sweep, rhythm = 2000 + 500 * species, 300 * (species % 4 - 1.5), 3 + species % 3
    start = rng.uniform(0, 0.3)
    while start < SECONDS - 0.2:
        length = rng.uniform(0.08, 0.16)
        inside = (t >= start) & (t < start + length)
        local = t[inside] - start
        phase = 2 * np.pi * (pitch * rng.normal(1, 0.03) * local + sweep / length * local**2)
        audio[inside] += rng.uniform(0.1, 0.5) * np.sin(phase) * np.hanning(local.size)
        start += length + rng.exponential(1 / rhythm)
    return (np.clip(audio, -1, 1) * 32767).astype(np.int16)


def make_recordings(n=400):
    if (ROOT / "labels.csv").exists():
        return
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    rows = []
    for i in range(n):
        species = int(rng.integers(len(SPECIES)))
        name = f"XC{100000 + i}.wav"
        wavfile.write(ROOT / name, RECORDED_RATE, synthesise_call(rng, species))
        rows.append((name, SPECIES[species]))
    with open(ROOT / "labels.csv", "w", newline="") as f:
        csv.writer(f).writerows([("file", "species")] + rows)


def mel_filterbank(rate, n_fft, n_mels, fmin=500.0, fmax=10000.0):
    def to_mel(hz):
        return 2595 * np.log10(1 + hz / 700)

    edges = 700 * (10 ** (np.linspace(to_mel(fmin), to_mel(fmax), n_mels + 2) / 2595) - 1)
    freqs = np.fft.rfftfreq(n_fft, 1 / rate)
    bank = np.zeros((n_mels, freqs.size), dtype=np.float32)
    for m in range(n_mels):
        left, centre, right = edges[m : m + 3]
        bank[m] = np.clip(np.minimum((freqs - left) / (centre - left), (right - freqs) / (right - centre)), 0, None)
    return bank


class BirdCallDataset(Dataset):
    def __init__(self, rows, augment=False):
        self.rows = rows
        self.augment = augment
        self.bank = mel_filterbank(RATE, N_FFT, N_MELS)

    def __len__(self):
        return len(self.rows)

    def load_log_mel(self, path):
        rate, audio = wavfile.read(path)
        audio = audio.astype(np.float32) / 32768
        audio = resample_poly(audio, RATE, rate)
        _, _, spectrum = stft(audio, RATE, nperseg=N_FFT, noverlap=N_FFT - HOP)
        mel = self.bank @ (np.abs(spectrum) ** 2)
        mel = np.log(mel + 1e-8)
        return ((mel - mel.mean()) / (mel.std() + 1e-5)).astype(np.float32)

    def __getitem__(self, index):
        name, species = self.rows[index]
        mel = torch.from_numpy(self.load_log_mel(ROOT / name))
        if self.augment:
            mel = torch.roll(mel, int(torch.randint(mel.shape[1], ())), dims=1)
            band = int(torch.randint(N_MELS - 8, ()))
            mel[band : band + 8] = 0.0
        return mel.unsqueeze(0), SPECIES.index(species)


class BirdDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        make_recordings()

    def setup(self, stage=None):
        with open(ROOT / "labels.csv") as f:
            rows = [(r["file"], r["species"]) for r in csv.DictReader(f)]
        self.train_set = BirdCallDataset(rows[:320], augment=True)
        self.val_set = BirdCallDataset(rows[320:360])
        self.test_set = BirdCallDataset(rows[360:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


class BirdClassifier(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        widths = [1, 16, 32, 48, 64]
        blocks = []
        for a, b in zip(widths, widths[1:]):
            stride = 2 if a == 1 else 1
            blocks += [nn.Conv2d(a, b, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, len(SPECIES)))
        self.train_acc = MulticlassAccuracy(len(SPECIES))
        self.val_acc = MulticlassAccuracy(len(SPECIES))
        self.val_f1 = MulticlassF1Score(len(SPECIES))

    def forward(self, x):
        return self.head(self.features(x))

    def training_step(self, batch, batch_idx):
        mel, label = batch
        logits = self(mel)
        loss = F.cross_entropy(logits, label)
        self.train_acc(logits, label)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        mel, label = batch
        logits = self(mel)
        self.val_acc(logits, label)
        self.val_f1(logits, label)
        self.log("val_loss", F.cross_entropy(logits, label), prog_bar=True)
        self.log_dict({"val_acc": self.val_acc, "val_f1": self.val_f1})

    def test_step(self, batch, batch_idx):
        mel, label = batch
        self.log("test_acc", (self(mel).argmax(1) == label).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80)
        return [optimizer], [scheduler]


if __name__ == "__main__":
    pl.seed_everything(1)
    trainer = pl.Trainer(
        max_epochs=80,
        accelerator="cpu",
        log_every_n_steps=10,
        logger=CSVLogger(ROOT / "runs"),
        callbacks=[ModelCheckpoint(monitor="val_f1", mode="max"), LearningRateMonitor()],
    )
    data = BirdDataModule()
    model = BirdClassifier()
    trainer.fit(model, data)
    trainer.test(model, data)
