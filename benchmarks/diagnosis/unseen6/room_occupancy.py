"""How many people are in the room?  CO2 / temperature / noise sensors, Lightning version."""
import argparse
import pathlib
import tempfile
import time

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS = ["co2", "temp", "humidity", "lux", "noise", "door"]


def export_building(folder: pathlib.Path, rooms: int, minutes: int, seed: int = 0):
    """One CSV per room, in the form in which the building system exports them."""
    rng = np.random.default_rng(seed)
    stamps = pd.date_range("2023-03-01", periods=minutes, freq="min").strftime("%d.%m.%Y %H:%M")
    hour = (np.arange(minutes) / 60) % 24
    for room in range(rooms):
        busy = np.exp(-((hour - 13) / 4) ** 2)
        people = rng.poisson(6 * busy * rng.uniform(0.5, 1.5))
        people = pd.Series(people).rolling(30, min_periods=1).median().to_numpy()
        co2 = 420 + 70 * pd.Series(people).ewm(halflife=20).mean() + rng.normal(0, 12, minutes)
        df = pd.DataFrame({
            "time": stamps,
            "co2": co2.round(1),
            "temp": (20 + 0.25 * people + rng.normal(0, 0.3, minutes)).round(2),
            "humidity": (40 + 0.8 * people + rng.normal(0, 2, minutes)).round(1),
            "lux": (300 * (people > 0) + rng.normal(60, 20, minutes)).round(0),
            "noise": (32 + 4 * np.sqrt(people) + rng.normal(0, 2, minutes)).round(1),
            "door": rng.poisson(0.05 + 0.05 * people),
            "people": people.astype(int),
        })
        df.to_csv(folder / f"room_{room:02d}.csv", index=False, sep=";")


class RoomWindows(Dataset):
    """Random windows; the CSV files are read when the first window is asked for."""

    def __init__(self, folder, window, per_epoch):
        self.files = sorted(pathlib.Path(folder).glob("room_*.csv"))
        self.window, self.per_epoch = window, per_epoch
        self.rooms = None

    def _load(self):
        self.rooms = []
        for f in self.files:
            df = pd.read_csv(f, sep=";")
            df["time"] = pd.to_datetime(df["time"], format="%d.%m.%Y %H:%M")
            df = df.set_index("time").sort_index()
            x = df[SENSORS].rolling("5min").mean()
            x = ((x - x.mean()) / x.std()).to_numpy(np.float32)
            day = df.index.hour.to_numpy() / 24 + df.index.minute.to_numpy() / 1440
            clock = np.stack([np.sin(2 * np.pi * day), np.cos(2 * np.pi * day)], 1).astype(np.float32)
            self.rooms.append((np.concatenate([x, clock], 1), df["people"].to_numpy(np.float32)))

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, _):
        if self.rooms is None:
            self._load()
        x, people = self.rooms[torch.randint(len(self.rooms), ()).item()]
        end = torch.randint(self.window, len(x), ()).item()
        return torch.from_numpy(x[end - self.window:end]), people[end - 1]


class Occupancy(pl.LightningModule):
    def __init__(self, channels, hidden, lr):
        super().__init__()
        self.lr = lr
        self.conv = nn.Sequential(
            nn.Conv1d(channels, hidden, 5, padding=2), nn.GELU(),
            nn.Conv1d(hidden, hidden, 5, stride=2, padding=2), nn.GELU(),
            nn.Conv1d(hidden, hidden, 5, stride=2, padding=2), nn.GELU())
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return F.softplus(self.out(self.rnn(h)[0][:, -1])).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, people = batch
        rate = self(x) + 1e-4
        loss = F.poisson_nll_loss(rate, people, log_input=False)
        self.log("loss", loss, on_step=False, on_epoch=True)
        self.log("mae", (rate - people).abs().mean(), on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class EpochPrinter(pl.Callback):
    def on_train_start(self, trainer, module):
        self.t0 = time.time()

    def on_train_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch:3d}  step {trainer.global_step:5d}  loss {m['loss']:.4f}  "
              f"mae {m['mae']:.3f}  {trainer.global_step / (time.time() - self.t0):.1f} steps/s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rooms", type=int, default=8)
    ap.add_argument("--minutes", type=int, default=30000)
    ap.add_argument("--window", type=int, default=180)
    ap.add_argument("--per-epoch", type=int, default=480)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--hidden", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=150)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()

    pl.seed_everything(2)
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        export_building(folder, args.rooms, args.minutes)
        loader = DataLoader(RoomWindows(folder, args.window, args.per_epoch), batch_size=args.batch,
                            num_workers=1)
        trainer = pl.Trainer(max_epochs=args.epochs, accelerator="cpu", logger=False,
                             enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False, callbacks=[EpochPrinter()])
        trainer.fit(Occupancy(len(SENSORS) + 2, args.hidden, args.lr), loader)


if __name__ == "__main__":
    main()
