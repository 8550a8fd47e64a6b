"""Video clips: most are short, a few are very long, and decoding (stood in for by a pause) takes as long as they are."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHORT_MS = 2
LONG_MS = 700
EVERY = 97
BATCH = 8


class Clips(Dataset):
    def __len__(self):
        return 100_000

    def decode(self, index):
        milliseconds = LONG_MS if index % EVERY == 5 else SHORT_MS
        time.sleep(milliseconds / 1000)
        return torch.full((16, 32), 1.0 / (1 + index % 7))

    def __getitem__(self, index):
        return self.decode(index), index % 7


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 7)

    def forward(self, clips):
        time.sleep(0.012)  # stands for a device that is busy with the batch
        return self.head(clips.mean(1))


def main():
    model = Pooling()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for clips, labels in DataLoader(Clips(), batch_size=BATCH, num_workers=4, prefetch_factor=2):
        loss = nn.functional.cross_entropy(model(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
