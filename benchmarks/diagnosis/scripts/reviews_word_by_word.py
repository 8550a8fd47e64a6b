"""Sentiment of reviews; words are split and looked up when a review is drawn."""

import random
import re

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH = 1200
BATCH = 32
WORDS = 20_000
TOKEN = re.compile(r"[a-z]+|[0-9]+|[^\sa-z0-9]")


def write_reviews(count=256, seed=3):
    draw = random.Random(seed)
    syllables = ["ba", "ko", "ri", "mu", "te", "so", "la", "ne", "fi", "du"]
    vocabulary = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(WORDS)]
    return [" ".join(draw.choices(vocabulary, k=LENGTH)) + "." for _ in range(count)], vocabulary


class Reviews(Dataset):
    def __init__(self):
        self.texts, vocabulary = write_reviews()
        self.index = {word: number + 1 for number, word in enumerate(dict.fromkeys(vocabulary))}

    def __len__(self):
        return 100_000

    def encode(self, text):
        ids = [self.index.get(token, 0) for token in TOKEN.findall(text.lower())]
        pairs = [(31 * a + b) % WORDS for a, b in zip(ids, ids[1:], strict=False)]
        return torch.tensor((ids + pairs)[: 2 * LENGTH - 2])

    def __getitem__(self, number):
        return self.encode(self.texts[number % len(self.texts)]), number % 2


def main():
    data = Reviews()
    model = nn.Sequential(nn.EmbeddingBag(WORDS + 1, 16), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (ids, labels) in enumerate(DataLoader(data, batch_size=BATCH, num_workers=2)):
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"{step}\t{loss.item():.4f}")


if __name__ == "__main__":
    main()
