"""Forecast the next hours of a weather station from its stored readings.

The readings live in an SQLite file in the folder given on the command line.
"""
import os
import sqlite3
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STATIONS = 300
HOURS = 200
BATCH = 24

PAST, FUTURE = 48, 12


def build_database(path):
    rng = np.random.default_rng(1999)
    hour = np.arange(HOURS)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE reading (station INTEGER, hour INTEGER, temperature REAL, pressure REAL, humidity REAL)")
    for station in range(STATIONS):
        daily = 6 * np.sin(2 * np.pi * (hour + rng.integers(24)) / 24)
        temperature = rng.normal(12, 5) + daily + np.cumsum(rng.normal(0, 0.2, HOURS))
        pressure = 1013 + np.cumsum(rng.normal(0, 0.4, HOURS))
        humidity = np.clip(70 - 2 * daily + rng.normal(0, 4, HOURS), 0, 100)
        db.executemany("INSERT INTO reading VALUES (?, ?, ?, ?, ?)",
                       zip([station] * HOURS, hour.tolist(), temperature.tolist(),
                           pressure.tolist(), humidity.tolist()))
    db.commit()
    db.close()


class Readings(Dataset):
    QUERY = ("SELECT temperature, pressure, humidity FROM reading "
             "WHERE station = ? AND hour >= ? AND hour < ? ORDER BY hour")

    def __init__(self, path):
        self.path = path
        self.db = None
        self.starts = HOURS - PAST - FUTURE

    def __len__(self):
        return STATIONS * self.starts

    def __getitem__(self, index):
        if self.db is None:                     # one connection per process
            self.db = sqlite3.connect(self.path)
        station, start = divmod(index, self.starts)
        rows = self.db.execute(self.QUERY, (station, start, start + PAST + FUTURE)).fetchall()
        values = torch.tensor(rows)
        values = (values - torch.tensor([12.0, 1013.0, 70.0])) / torch.tensor([8.0, 6.0, 15.0])
        return values[:PAST], values[PAST:, 0]


class Forecaster(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.inp = nn.Linear(3, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.position = nn.Parameter(torch.randn(PAST, width) * 0.02)
        self.out = nn.Linear(width, FUTURE)

    def forward(self, x):
        return self.out(self.encoder(self.inp(x) + self.position)[:, -1])


def main():
    torch.manual_seed(1999)
    path = os.path.join(sys.argv[1], "weather.db")
    build_database(path)
    loader = DataLoader(Readings(path), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    smooth = 1.0
    for epoch in range(50):
        for n, (past, future) in enumerate(loader):
            loss = nn.functional.mse_loss(model(past), future)
            opt.zero_grad()
            loss.backward()
            opt.step()
            smooth += 0.02 * (loss.item() - smooth)
            if n % 50 == 0:
                print(f"epoch {epoch}, batch {n}: {smooth:.3f}")


if __name__ == "__main__":
    main()
