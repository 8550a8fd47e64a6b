#!/usr/bin/env python
# Classify the treatment of a cell from its live imaging time course.
# Input: one long table (a row = one cell at one time point), as exported by
# the segmentation software. Output: per-cell treatment probabilities.

import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

FOLDER = os.path.join(tempfile.gettempdir(), "plate_timecourse")
TABLE = os.path.join(FOLDER, "tracks.parquet")
CHANNELS = ["area", "ecc", "dapi", "gfp", "rfp", "speed"]
TREATMENTS = ["DMSO", "nocodazole", "taxol", "cisplatin"]
N_CELLS = 4000
N_TIMES = 48
SEED = 11
BATCH_SIZE = 32
N_EPOCHS = 400


def simulate_tracks():
    """Simulated tracks: an oscillating cell cycle, modified by the drug."""
    rng = np.random.default_rng(SEED)
    t = np.arange(N_TIMES) * 0.5
    drug = rng.integers(0, len(TREATMENTS), N_CELLS)
    period = np.array([18.0, 26.0, 24.0, 20.0])[drug] * rng.lognormal(0, 0.15, N_CELLS)
    phase = rng.uniform(0, 2 * np.pi, N_CELLS)
    decay = np.array([0.0, 0.005, 0.01, 0.03])[drug]
    wave = np.sin(2 * np.pi * t[None] / period[:, None] + phase[:, None])
    level = np.exp(-decay[:, None] * t[None])
    values = np.stack(
        [
            1.0 + 0.4 * wave,
            0.5 - 0.2 * wave * level,
            1.5 * level + 0.3 * wave,
            np.abs(wave) * level,
            1.0 - np.abs(wave),
            level * 0.8,
        ],
        axis=-1,
    )
    values = values + rng.normal(0, 0.35, values.shape)

    order = rng.permutation(N_CELLS * N_TIMES)      # export is not sorted
    df = pd.DataFrame(values.reshape(-1, len(CHANNELS)).astype("float32"), columns=CHANNELS)
    df.insert(0, "hours", np.tile(t, N_CELLS))
    df.insert(0, "treatment", np.repeat(drug, N_TIMES))
    df.insert(0, "cell_id", np.repeat(np.arange(N_CELLS), N_TIMES))
    return df.iloc[order].reset_index(drop=True)


def load_tracks():
    if not os.path.exists(TABLE):
        os.makedirs(FOLDER, exist_ok=True)
        simulate_tracks().to_parquet(TABLE + ".part")
        os.replace(TABLE + ".part", TABLE)
    df = pd.read_parquet(TABLE)
    df[CHANNELS] = (df[CHANNELS] - df[CHANNELS].mean()) / df[CHANNELS].std()
    return df


class CellTracks(Dataset):
    def __init__(self, tracks):
        self.tracks = tracks
        self.cells = sorted(tracks["cell_id"].unique())

    def __len__(self):
        return len(self.cells)

    def __getitem__(self, i):
        rows = self.tracks[self.tracks["cell_id"] == self.cells[i]]
        rows = rows.sort_values("hours")
        x = torch.tensor(rows[CHANNELS].to_numpy(dtype="float32"))
        y = int(rows["treatment"].iloc[0])
        return x, y


class TrackNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.embed = nn.Linear(len(CHANNELS), hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.classify = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.Linear(hidden, 64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, len(TREATMENTS)),
        )

    def forward(self, x):
        h, _ = self.gru(torch.relu(self.embed(x)))
        return self.classify(h.mean(dim=1))


def accuracy(net, loader):
    net.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (net(x).argmax(1) == y).sum().item()
            total += len(y)
    net.train()
    return hits / total


torch.set_num_threads(1)
torch.manual_seed(SEED)
np.random.seed(SEED)

tracks = load_tracks()
print(tracks.head())
print(f"{len(tracks)} rows, {tracks['cell_id'].nunique()} cells")

dataset = CellTracks(tracks)
n_test = 16
train_set, test_set = random_split(dataset, [len(dataset) - n_test, n_test],
                                   generator=torch.Generator().manual_seed(SEED))
train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
test_loader = DataLoader(test_set, batch_size=n_test)

net = TrackNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)

for epoch in range(1, N_EPOCHS + 1):
    losses = []
    for k, (x, y) in enumerate(train_loader, 1):
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if k % 25 == 0:
            print(f"  epoch {epoch}, batch {k}/{len(train_loader)}, loss {np.mean(losses[-25:]):.4f}", flush=True)
    print(f"epoch {epoch}: loss {np.mean(losses):.4f}, held-out cells {accuracy(net, test_loader):.2%}", flush=True)
