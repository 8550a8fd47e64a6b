"""Bird call classifier; the clips' spectrograms come in shards."""
import argparse
import glob
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16
SHARDS = 6
FILTERS = 24

CLIPS_PER_SHARD = 200
BANDS, FRAMES = 40, 48
SPECIES = 8


def write_shards(folder):
    rng = np.random.default_rng(42)
    t = np.linspace(0, 1, FRAMES)
    bands = np.arange(BANDS)[None, :, None]
    for s in range(SHARDS):
        species = rng.integers(0, SPECIES, CLIPS_PER_SHARD)
        pitch = 8 + 3 * species[:, None] + 4 * np.sin(2 * np.pi * (1 + species[:, None] % 4) * t[None] + rng.uniform(0, 6, (CLIPS_PER_SHARD, 1)))
        energy = np.exp(-0.5 * ((bands - pitch[:, None, :]) / 1.5) ** 2)
        energy += 0.3 * rng.random(energy.shape)
        np.savez_compressed(os.path.join(folder, f"shard{s:02d}.npz"),
                            spectrogram=energy.astype(np.float16), species=species)


class BirdCalls(Dataset):
    def __init__(self, folder):
        self.files = sorted(glob.glob(os.path.join(folder, "shard*.npz")))

    def __len__(self):
        return len(self.files) * CLIPS_PER_SHARD

    def load(self, path):
        with np.load(path) as shard:
            return shard["spectrogram"], shard["species"]

    def __getitem__(self, index):
        which, row = divmod(index, CLIPS_PER_SHARD)
        spectrograms, species = self.load(self.files[which])
        x = torch.from_numpy(spectrograms[row].astype(np.float32))
        shift = int(torch.randint(-4, 5, ()))
        return x.roll(shift, dims=1).unsqueeze(0), int(species[row])


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, FILTERS, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(FILTERS, 2 * FILTERS, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.classify = nn.Linear(2 * FILTERS * (BANDS // 4), SPECIES)

    def forward(self, x):
        h = self.features(x).mean(dim=3)
        return self.classify(h.flatten(1))


def main(folder, epochs):
    torch.manual_seed(42)
    write_shards(folder)
    calls = BirdCalls(folder)
    loader = DataLoader(calls, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = CallNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        right = 0
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: {100 * right / len(calls):.1f} % of the calls recognised")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("-e", "--epochs", type=int, default=1000)
    a = ap.parse_args()
    main(a.folder, a.epochs)
