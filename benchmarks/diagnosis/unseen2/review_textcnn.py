"""Kim-style text CNN on synthetic product reviews; batches hold texts of about the same length."""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

N_REVIEWS, N_WORDS, N_CLASSES = 20_000, 8_000, 5


def write_reviews(seed=11):
    rng = np.random.default_rng(seed)
    vocab = np.array([f"w{i:05d}" for i in range(N_WORDS)])
    stars = rng.integers(0, N_CLASSES, N_REVIEWS)
    texts = []
    for y in stars:
        n = int(np.clip(rng.normal(40, 12), 8, 90))
        w = (rng.random(n) ** 2 * N_WORDS).astype(int)
        tell = rng.random(n) < 0.1
        w[tell] = y * 100 + rng.integers(0, 100, tell.sum())
        texts.append(" ".join(vocab[w]))
    return texts, stars


class Reviews(Dataset):
    def __init__(self):
        self.texts, stars = write_reviews()
        self.word2id = {f"w{i:05d}": i + 1 for i in range(N_WORDS)}
        self.ids = [torch.tensor([self.word2id[w] for w in t.split()]) for t in self.texts]
        self.stars = stars.tolist()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.stars[i]


class LengthBatches(Sampler):
    """a random stretch out of the reviews in order of length"""

    def __init__(self, texts, batch_size):
        self.texts = texts
        self.batch_size = batch_size

    def __len__(self):
        return len(self.texts) // self.batch_size

    def by_length(self):
        pairs = [(len(t.split()), i) for i, t in enumerate(self.texts)]
        pairs.sort()
        return [i for _, i in pairs]

    def __iter__(self):
        for _ in range(len(self)):
            order = self.by_length()
            start = random.randrange(len(order) - self.batch_size)
            yield order[start:start + self.batch_size]


def pad_batch(items):
    ids, stars = zip(*items)
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor(stars)


class TextCNN(nn.Module):
    def __init__(self, dim=64, filters=128, widths=(3, 4, 5)):
        super().__init__()
        self.emb = nn.Embedding(N_WORDS + 1, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, filters, w, padding=w // 2) for w in widths)
        self.head = nn.Linear(filters * len(widths), N_CLASSES)

    def forward(self, ids):
        x = self.emb(ids).transpose(1, 2)
        x = torch.cat([F.relu(c(x).amax(dim=2)) for c in self.convs], dim=1)
        return self.head(x)


class Trainer:
    def __init__(self, epochs=20, batch_size=32):
        self.data = Reviews()
        self.loader = DataLoader(self.data, batch_sampler=LengthBatches(self.data.texts, batch_size),
                                 collate_fn=pad_batch)
        self.model = TextCNN()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.epochs = epochs
        self.step = 0

    def train(self):
        for epoch in range(self.epochs):
            for ids, stars in self.loader:
                loss = F.cross_entropy(self.model(ids), stars)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                if self.step % 50 == 0:
                    print(f"epoch {epoch} | step {self.step} | loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    Trainer().train()
