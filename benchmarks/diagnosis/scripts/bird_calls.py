"""Recognise calls in recordings: spectrograms are computed for each window that is drawn."""

import numpy as np
import torch
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 22_050
SECONDS = 4
WINDOW = 1024
BATCH_SIZE = 16
HOP = 64


def spectrogram(wave):
    _, _, power = signal.spectrogram(wave, RATE, nperseg=WINDOW, noverlap=WINDOW - HOP)
    return np.log1p(power[:128, ::8]).astype(np.float32)


class Calls(Dataset):
    def __init__(self, minutes=4, seed=1):
        self.tape = np.random.default_rng(seed).standard_normal(minutes * 60 * RATE).astype(np.float32)

    def __len__(self):
        return 40_000

    def __getitem__(self, index):
        begin = (index * 7919) % (len(self.tape) - SECONDS * RATE)
        return torch.from_numpy(spectrogram(self.tape[begin : begin + SECONDS * RATE])), index % 20


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(128, 64, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8))
        self.head = nn.Linear(64 * 8, 20)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def run():
    torch.manual_seed(0)
    model = Recogniser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    calls = DataLoader(Calls(), BATCH_SIZE, shuffle=True, num_workers=2, pin_memory=False)
    for epoch in range(20):
        for spectra, labels in calls:
            loss = nn.functional.cross_entropy(model(spectra), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    run()
