"""Sentiment-like classification of variable-length token sequences with an LSTM."""
import random

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 32
HIDDEN = 64
N_REVIEWS = 20_000

VOCAB = 4000


class Reviews(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.lengths = np.clip(rng.lognormal(3.3, 0.5, n), 5, 80).astype(int)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.labels = rng.integers(0, 2, n)
        tokens = rng.integers(1, VOCAB, self.offsets[-1])
        tilt = np.repeat(self.labels, self.lengths)
        lucky = rng.random(len(tokens)) < 0.08
        tokens[lucky] = 1 + tilt[lucky] * 50 + tokens[lucky] % 50
        self.tokens = tokens.astype(np.int32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        words = self.tokens[self.offsets[i]:self.offsets[i + 1]]
        return torch.from_numpy(words.astype(np.int64)), int(self.labels[i])


class BucketBatchSampler:
    """Batches of reviews of about the same length, so that little padding is needed."""

    def __init__(self, lengths, batch_size, seed=0):
        self.lengths = [int(n) for n in lengths]
        self.batch_size = batch_size
        self.random = random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def closest(self, length):
        pool = list(range(len(self.lengths)))
        pool.sort(key=lambda i: (abs(self.lengths[i] - length), self.random.random()))
        return pool[:self.batch_size]

    def __iter__(self):
        for _ in range(len(self)):
            yield self.closest(self.random.choice(self.lengths))


def collate(items):
    sequences, labels = zip(*items)
    lengths = torch.tensor([len(s) for s in sequences])
    return pad_sequence(sequences, batch_first=True), lengths, torch.tensor(labels)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, HIDDEN, batch_first=True)
        self.score = nn.Linear(HIDDEN, 2)

    def forward(self, tokens, lengths):
        states, _ = self.lstm(self.embedding(tokens))
        last = states[torch.arange(len(tokens)), lengths - 1]
        return self.score(last)


def run_epoch(model, loader, optimizer, epoch):
    correct = count = 0
    for k, (tokens, lengths, labels) in enumerate(loader, 1):
        logits = model(tokens, lengths)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        correct += int((logits.argmax(-1) == labels).sum())
        count += len(labels)
        if k % 100 == 0:
            print(f"epoch {epoch} batch {k}/{len(loader)} acc={correct / count:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(21)
    reviews = Reviews(N_REVIEWS, seed=21)
    sampler = BucketBatchSampler(reviews.lengths, BATCH_SIZE)
    loader = DataLoader(reviews, batch_sampler=sampler, collate_fn=collate, num_workers=1,
                        persistent_workers=True, prefetch_factor=4)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(200):
        run_epoch(model, loader, optimizer, epoch)
