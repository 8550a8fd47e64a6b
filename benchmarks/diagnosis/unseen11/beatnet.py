"""Beat and downbeat tracking on log-mel frames (CRNN, PyTorch Lightning)."""
import tempfile
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FPS = 50
N_MELS = 64


def synth_track(rng, seconds):
    """Log-mel of a drum-machine pattern with pads on top, plus beat targets."""
    n = seconds * FPS
    bpm = rng.uniform(80, 170)
    times = np.arange(rng.uniform(0, 0.5), seconds, 60 / bpm)
    beats = np.minimum((times * FPS).astype(int), n - 1)
    mel = rng.normal(-7.0, 0.6, (n, N_MELS)).astype(np.float32)
    decay = np.exp(-np.arange(12) / 3.0)[:, None].astype(np.float32)
    kick = np.exp(-np.arange(N_MELS) / 6.0).astype(np.float32)
    hat = np.exp(-(N_MELS - np.arange(N_MELS)) / 10.0).astype(np.float32)
    target = np.zeros((n, 2), dtype=np.float32)
    for k, b in enumerate(beats):
        end = min(n, b + 12)
        mel[b:end] += 5 * decay[: end - b] * (kick if k % 2 == 0 else 0.6 * kick + hat)
        target[b, 0] = 1.0
        if k % 4 == 0:
            target[b, 1] = 1.0
    for _ in range(seconds // 4):
        s, f = rng.integers(0, n - 100), rng.integers(8, N_MELS - 8)
        mel[s:s + 100, f - 1:f + 2] += 2.0
    return mel, target


def prepare_tracks(root: Path, n_tracks=9, seconds=1400, seed=3):
    root.mkdir(parents=True, exist_ok=True)
    paths = [root / f"track_{i:03d}_{seconds}s.npz" for i in range(n_tracks)]
    for i, path in enumerate(paths):
        if not path.exists():
            mel, target = synth_track(np.random.default_rng(seed + i), seconds)
            np.savez(path, mel=mel, target=target)
    return paths


class BeatWindows(Dataset):
    """Random windows; one epoch sees `per_track` windows of every track."""

    def __init__(self, paths, window=128, per_track=180):
        self.paths, self.window, self.per_track = paths, window, per_track
        self._open = {}

    def __len__(self):
        return len(self.paths) * self.per_track

    def track(self, i):
        if i not in self._open:
            self._open[i] = np.load(self.paths[i], mmap_mode="r")
        return self._open[i]

    def __getitem__(self, idx):
        track = self.track(idx % len(self.paths))
        n = track["target"].shape[0]
        start = int(torch.randint(0, n - self.window, ()))
        mel = track["mel"][start:start + self.window]
        target = track["target"][start:start + self.window]
        # widen the targets by a frame on each side, as in madmom
        wide = target.copy()
        wide[1:] = np.maximum(wide[1:], 0.5 * target[:-1])
        wide[:-1] = np.maximum(wide[:-1], 0.5 * target[1:])
        return torch.from_numpy((mel + 6.0) / 3.0), torch.from_numpy(wide)


class BeatData(pl.LightningDataModule):
    def __init__(self, root, batch_size=20, num_workers=1):
        super().__init__()
        self.root, self.batch_size, self.num_workers = Path(root), batch_size, num_workers

    def prepare_data(self):
        prepare_tracks(self.root)

    def setup(self, stage=None):
        paths = prepare_tracks(self.root)
        self.train_set = BeatWindows(paths[:-2])
        self.val_set = BeatWindows(paths[-2:], per_track=24)

    def loader(self, dataset, shuffle):
        return DataLoader(dataset, batch_size=self.batch_size, shuffle=shuffle, drop_last=shuffle,
                          num_workers=self.num_workers, persistent_workers=self.num_workers > 0)

    def train_dataloader(self):
        return self.loader(self.train_set, True)

    def val_dataloader(self):
        return self.loader(self.val_set, False)


class BeatNet(pl.LightningModule):
    def __init__(self, channels=24, hidden=32, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.conv = nn.Sequential(
            nn.Conv1d(N_MELS, channels * 2, 5, padding=2), nn.BatchNorm1d(channels * 2), nn.ELU(),
            nn.Conv1d(channels * 2, channels * 2, 3, padding=1), nn.BatchNorm1d(channels * 2), nn.ELU(),
        )
        self.rnn = nn.GRU(channels * 2, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 2)
        self.register_buffer("pos_weight", torch.tensor([8.0, 20.0]))

    def forward(self, mel):
        h = self.conv(mel.transpose(1, 2)).transpose(1, 2)
        return self.head(self.rnn(h)[0])

    def step(self, batch):
        mel, target = batch
        logits = self(mel)
        return F.binary_cross_entropy_with_logits(logits, target, pos_weight=self.pos_weight), logits

    def training_step(self, batch, batch_idx):
        loss, _ = self.step(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=False)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, logits = self.step(batch)
        hit = ((logits[..., 0] > 0) == (batch[1][..., 0] > 0.75)).float().mean()
        self.log_dict({"val_loss": loss, "val_frame_acc": hit})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class PrintEpoch(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        m = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {m}", flush=True)


def main():
    pl.seed_everything(7)
    torch.set_num_threads(1)  # the other core belongs to the loader
    root = Path(tempfile.gettempdir()) / "beatnet"
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=20, check_val_every_n_epoch=5, num_sanity_val_steps=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, callbacks=[PrintEpoch()],
        gradient_clip_val=5.0,
    )
    trainer.fit(BeatNet(), datamodule=BeatData(root))


if __name__ == "__main__":
    main()
