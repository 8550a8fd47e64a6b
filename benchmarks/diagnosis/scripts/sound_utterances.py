"""Utterances of different lengths are packed, so that the recurrent network steps through no padding."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

UNITS = 112
BANDS = 40


class Utterances(Dataset):
    def __init__(self, count=600, seed=0):
        draw = random.Random(seed)
        self.spectra = [torch.randn(min(int(draw.lognormvariate(3.3, 0.9)) + 6, 300), BANDS) for _ in range(count)]

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.spectra[index % len(self.spectra)], index % 7


def collate(samples):
    spectra, speakers = zip(*samples, strict=True)
    lengths = torch.tensor([len(spectrum) for spectrum in spectra])
    return pad_sequence(spectra, batch_first=True), lengths, torch.tensor(speakers)


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(BANDS, UNITS, num_layers=2, batch_first=True)
        self.out = nn.Linear(UNITS, 7)

    def forward(self, spectra, lengths):
        packed = pack_padded_sequence(spectra, lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(packed)[1][-1])


def main():
    model = Speaker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Utterances(), batch_size=12, shuffle=True, num_workers=1, collate_fn=collate)
    for spectra, lengths, speakers in loader:
        loss = nn.functional.cross_entropy(model(spectra, lengths), speakers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
