"""Utterances of very different lengths share batches, as a transformer over their spectra gets them."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

UNITS = 112
BATCH = 12
BANDS = 40


class Utterances(Dataset):
    def __init__(self, count=600, seed=0):
        draw = random.Random(seed)
        self.lengths = [min(int(draw.lognormvariate(3.3, 0.9)) + 6, 300) for _ in range(count)]
        self.spectra = [torch.randn(length, BANDS) for length in self.lengths]

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, index):
        return self.spectra[index], index % 7


def batches(lengths):
    order = random.sample(range(len(lengths)), len(lengths))
    parts = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return random.sample(parts, len(parts))


class Batches:
    def __init__(self, lengths, passes=100):
        self.lengths, self.passes = lengths, passes

    def __iter__(self):
        for _ in range(self.passes):
            yield from batches(self.lengths)


def collate(samples):
    spectra, speakers = zip(*samples, strict=True)
    lengths = torch.tensor([len(spectrum) for spectrum in spectra])
    return pad_sequence(spectra, batch_first=True), lengths, torch.tensor(speakers)


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.bands = nn.Linear(BANDS, UNITS)
        layer = nn.TransformerEncoderLayer(UNITS, 4, 2 * UNITS, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(UNITS, 7)

    def forward(self, spectra, lengths):
        kept = torch.arange(spectra.shape[1]) < lengths[:, None]
        states = self.encoder(self.bands(spectra), src_key_padding_mask=~kept)
        return self.out((states * kept[..., None]).sum(1) / lengths[:, None])


def main():
    data = Utterances()
    model = Speaker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for spectra, lengths, speakers in DataLoader(data, batch_sampler=Batches(data.lengths), collate_fn=collate):
        loss = nn.functional.cross_entropy(model(spectra, lengths), speakers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
