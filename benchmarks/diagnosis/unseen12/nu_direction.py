"""Direction reconstruction of simulated neutrino events (toy detector).

Converts the raw events once into a SQLite database, one table with the event truth and
one with the pulses, then trains a small DeepSets-like network on the pulses.

    python nu_direction.py --max-epochs 40
"""
import argparse
import logging
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)

FEATURES = ["dom_x", "dom_y", "dom_z", "dom_time", "charge"]
TRUTH = ["dir_x", "dir_y", "dir_z"]
DATA_DIR = Path(tempfile.gettempdir()) / "nu_direction"


# --------------------------------------------------------------------------- conversion
def simulate_event(rng: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    n = int(rng.integers(20, 90))
    vertex = rng.uniform(-200, 200, size=3)
    along = rng.uniform(-400, 400, size=n)
    pos = vertex + along[:, None] * direction + rng.normal(scale=35.0, size=(n, 3))
    time = along / 0.3 + rng.exponential(60.0, size=n)
    charge = rng.gamma(1.5, 1.0, size=n)
    return np.column_stack([pos, time, charge]), direction


def convert(path: Path, n_events: int, seed: int = 5) -> None:
    """Write `n_events` simulated events into a database at `path`."""
    rng = np.random.default_rng(seed)
    tmp = path.with_suffix(".tmp")
    tmp.unlink(missing_ok=True)
    con = sqlite3.connect(tmp)
    con.execute(f"CREATE TABLE truth (event_no INTEGER PRIMARY KEY, {', '.join(c + ' REAL' for c in TRUTH)})")
    con.execute(f"CREATE TABLE pulses (event_no INTEGER NOT NULL, {', '.join(c + ' REAL' for c in FEATURES)})")
    for event_no in range(n_events):
        pulses, direction = simulate_event(rng)
        con.execute("INSERT INTO truth VALUES (?, ?, ?, ?)", (event_no, *direction.tolist()))
        con.executemany(
            "INSERT INTO pulses VALUES (?, ?, ?, ?, ?, ?)",
            [(event_no, *row) for row in pulses.tolist()],
        )
    con.commit()
    con.close()
    os.replace(tmp, path)


# --------------------------------------------------------------------------- data set
class EventDataset(Dataset):
    def __init__(self, path: Path, pulse_table: str = "pulses", truth_table: str = "truth"):
        self._path = str(path)
        self._pulse_table = pulse_table
        self._truth_table = truth_table
        self._con: Optional[sqlite3.Connection] = None
        with sqlite3.connect(self._path) as con:
            rows = con.execute(f"SELECT event_no FROM {truth_table}").fetchall()
        self._event_nos = [r[0] for r in rows]

    def _establish_connection(self) -> sqlite3.Connection:
        if self._con is None:
            self._con = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        return self._con

    def _query(self, table: str, columns: List[str], event_no: int) -> List[tuple]:
        con = self._establish_connection()
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE event_no = ?"
        return con.execute(sql, (event_no,)).fetchall()

    def __len__(self) -> int:
        return len(self._event_nos)

    def __getitem__(self, index: int) -> Dict[str, Tensor]:
        event_no = self._event_nos[index]
        x = torch.tensor(self._query(self._pulse_table, FEATURES, event_no), dtype=torch.float32)
        y = torch.tensor(self._query(self._truth_table, TRUTH, event_no)[0], dtype=torch.float32)
        x[:, :3] /= 300.0
        x[:, 3] /= 1000.0
        x[:, 4] = torch.log1p(x[:, 4])
        return {"x": x, "y": y}


def collate(events: List[Dict[str, Tensor]]) -> Tuple[Tensor, Tensor, Tensor]:
    x = torch.cat([e["x"] for e in events])
    batch = torch.repeat_interleave(
        torch.arange(len(events)), torch.tensor([len(e["x"]) for e in events])
    )
    return x, batch, torch.stack([e["y"] for e in events])


class EventDataModule(pl.LightningDataModule):
    def __init__(self, n_events: int, batch_size: int, num_workers: int):
        super().__init__()
        self.save_hyperparameters()
        self.path = DATA_DIR / f"events_{n_events}.db"

    def prepare_data(self) -> None:
        DATA_DIR.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            convert(self.path, self.hparams.n_events)

    def setup(self, stage: Optional[str] = None) -> None:
        self.train_set = EventDataset(self.path)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.train_set,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            drop_last=True,
            collate_fn=collate,
            num_workers=self.hparams.num_workers,
            persistent_workers=self.hparams.num_workers > 0,
        )


# --------------------------------------------------------------------------- model
class DirectionModel(pl.LightningModule):
    def __init__(self, hidden: int = 128, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Sequential(
            nn.Linear(len(FEATURES), hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(),
        )
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.GELU(), nn.Linear(hidden, 3))

    def forward(self, x: Tensor, batch: Tensor, n: int) -> Tensor:
        h = self.embed(x)
        total = h.new_zeros(n, h.shape[1]).index_add_(0, batch, h)
        count = torch.bincount(batch, minlength=n).clamp(min=1).unsqueeze(1)
        second = h.new_zeros(n, h.shape[1]).index_add_(0, batch, h * x[:, 3:4])
        return F.normalize(self.head(torch.cat([total, second], 1) / count), dim=1)

    def training_step(self, batch_data, batch_idx: int) -> Tensor:
        x, batch, y = batch_data
        pred = self(x, batch, len(y))
        loss = 1.0 - (pred * y).sum(1).mean()
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(y))
        return loss

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['train_loss']:.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n-events", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--max-epochs", type=int, default=40)
    args = parser.parse_args()

    pl.seed_everything(11)
    torch.set_num_threads(1)
    data = EventDataModule(args.n_events, args.batch_size, args.num_workers)
    model = DirectionModel()
    trainer = pl.Trainer(
        max_epochs=args.max_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)


if __name__ == "__main__":
    main()
