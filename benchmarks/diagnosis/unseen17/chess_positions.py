"""Predicting the outcome of a chess game (loss, draw, win) from a single position given as FEN."""
import csv
import random
import tempfile
from pathlib import Path

import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAUROC, MulticlassAccuracy, MulticlassCalibrationError

ROOT = Path(tempfile.gettempdir()) / "chess_positions"
PIECES = "PNBRQKpnbrqk"
VALUE = {"P": 1, "N": 3, "B": 3.1, "R": 5, "Q": 9, "K": 0}


def random_position(rng):
    board = [["" for _ in range(8)] for _ in range(8)]
    squares = [(r, f) for r in range(8) for f in range(8)]
    rng.shuffle(squares)
    score = 0.0
    pieces = ["K", "k"]
    for letter, most in [("P", 8), ("N", 2), ("B", 2), ("R", 2), ("Q", 1)]:
        pieces += [letter] * rng.randint(most // 3, most)
        pieces += [letter.lower()] * rng.randint(most // 3, most)
    for piece, (rank, file) in zip(pieces, squares):
        board[rank][file] = piece
        centre = 0.15 * (3.5 - max(abs(rank - 3.5), abs(file - 3.5)))
        sign = 1 if piece.isupper() else -1
        score += sign * (VALUE[piece.upper()] + centre)
    rows = []
    for row in board:
        text, empty = "", 0
        for square in row:
            if square:
                text += (str(empty) if empty else "") + square
                empty = 0
            else:
                empty += 1
        rows.append(text + (str(empty) if empty else ""))
    turn = rng.choice("wb")
    fen = "/".join(rows) + f" {turn} - - 0 {rng.randint(10, 60)}"
    score = (score if turn == "w" else -score) + 0.4 + rng.gauss(0, 2.5)
    return fen, 0 if score < -1.5 else 2 if score > 1.5 else 1


def prepare(path, count=70000, seed=5):
    rng = random.Random(seed)
    tmp = path.with_suffix(".part")
    with open(tmp, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["fen", "outcome"])
        for _ in range(count):
            writer.writerow(random_position(rng))
    tmp.rename(path)


def fen_to_planes(fen):
    placement, turn = fen.split(" ")[:2]
    planes = torch.zeros(13, 8, 8)
    for rank, row in enumerate(placement.split("/")):
        file = 0
        for symbol in row:
            if symbol.isdigit():
                file += int(symbol)
            else:
                planes[PIECES.index(symbol), rank, file] = 1.0
                file += 1
    if turn == "w":
        planes[12] = 1.0
    return planes


class PositionDataset(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return fen_to_planes(row["fen"]), int(row["outcome"])


class ChessData(pl.LightningDataModule):
    def __init__(self, batch_size=128):
        super().__init__()
        self.batch_size = batch_size
        self.path = ROOT / "positions.csv"

    def prepare_data(self):
        ROOT.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            prepare(self.path)

    def setup(self, stage=None):
        with open(self.path, newline="") as f:
            rows = list(csv.DictReader(f))
        self.train_set = PositionDataset(rows[:-8000])
        self.val_set = PositionDataset(rows[-8000:-4000])
        self.test_set = PositionDataset(rows[-4000:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(h)))


class OutcomeNet(pl.LightningModule):
    def __init__(self, channels=64, blocks=5, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv2d(13, channels, 3, padding=1)
        self.tower = nn.Sequential(*[ResidualBlock(channels) for _ in range(blocks)])
        self.head = nn.Sequential(
            nn.Conv2d(channels, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 64), nn.ReLU(), nn.Linear(64, 3)
        )
        self.train_acc = MulticlassAccuracy(num_classes=3)
        self.val_acc = MulticlassAccuracy(num_classes=3)
        self.val_auroc = MulticlassAUROC(num_classes=3)
        self.test_calibration = MulticlassCalibrationError(num_classes=3)

    def forward(self, planes):
        return self.head(self.tower(F.relu(self.stem(planes.contiguous(memory_format=torch.channels_last)))))

    def training_step(self, batch, batch_idx):
        planes, outcome = batch
        logits = self(planes)
        loss = F.cross_entropy(logits, outcome)
        self.train_acc.update(logits, outcome)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", self.train_acc.compute(), prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        self.train_acc.reset()

    def validation_step(self, batch, batch_idx):
        planes, outcome = batch
        logits = self(planes)
        self.val_acc.update(logits, outcome)
        self.val_auroc.update(logits, outcome)
        self.log("val_loss", F.cross_entropy(logits, outcome), prog_bar=True)

    def on_validation_epoch_end(self):
        self.log("val_acc", self.val_acc.compute(), prog_bar=True)
        self.log("val_auroc", self.val_auroc.compute(), prog_bar=True)
        self.val_acc.reset()
        self.val_auroc.reset()

    def test_step(self, batch, batch_idx):
        planes, outcome = batch
        self.test_calibration(self(planes).softmax(dim=1), outcome)
        self.log("test_calibration_error", self.test_calibration)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    pl.seed_everything(64)
    data = ChessData()
    model = OutcomeNet().to(memory_format=torch.channels_last)
    trainer = pl.Trainer(
        max_epochs=20,
        accelerator="cpu",
        precision="bf16-mixed",
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[ModelCheckpoint(monitor="val_auroc", mode="max")],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
