"""Masked-piece pretraining on a made-up language.

usage: language_windows.py WORKDIR
The corpus is one long byte file; pieces are found by greedy longest match.
"""
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH = 48
BLOCK = 128          # pieces per window
WIDTH = 40

MASK_RATE = 0.15
LONGEST = 9
PAD, MASK = 0, 1


def invent_language(seed=11):
    r = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = ["".join(r.choices(syllables, k=r.choice((1, 2, 2, 3, 4)))) for _ in range(2500)]
    weights = [1.0 / (k + 3) for k in range(len(words))]
    text = " ".join(r.choices(words, weights, k=90_000))
    pieces = ["<pad>", "<mask>", " "] + sorted(set("".join(syllables))) + syllables
    pieces += [" " + w for w in words[:500]] + words[:200]
    return text, {p: i for i, p in enumerate(dict.fromkeys(pieces)) if len(p) <= LONGEST}


def encode(text, vocabulary, limit=None):
    """Greedy longest match, left to right."""
    ids, at = [], 0
    while at < len(text) and (limit is None or len(ids) < limit):
        for size in range(LONGEST, 0, -1):
            piece = text[at:at + size]
            if piece in vocabulary:
                ids.append(vocabulary[piece])
                break
        at += size
    return ids


class Corpus:
    def __init__(self, path, vocabulary):
        self.bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self.vocabulary = vocabulary
        self.top = max(vocabulary.values()) + 1
        self.random = random.Random(5)

    def window(self):
        start = self.random.randrange(len(self.bytes) - BLOCK * LONGEST)
        text = self.bytes[start:start + BLOCK * LONGEST].tobytes().decode("ascii")
        return encode(text, self.vocabulary, BLOCK)

    def mask(self, ids):
        seen, wanted = [], []
        for piece in ids:
            if self.random.random() < MASK_RATE:
                wanted.append(piece)
                dice = self.random.random()
                if dice < 0.8:
                    seen.append(MASK)
                elif dice < 0.9:
                    seen.append(self.random.randrange(2, self.top))
                else:
                    seen.append(piece)
            else:
                seen.append(piece)
                wanted.append(-100)
        return seen, wanted

    def get_batch(self):
        rows = [self.mask(self.window()) for _ in range(BATCH)]
        return torch.tensor([a for a, _ in rows]), torch.tensor([b for _, b in rows])


class ContextModel(nn.Module):
    """Neighbourhood averages at two scales and a small head for the masked places."""

    def __init__(self, pieces):
        super().__init__()
        self.embed = nn.Embedding(pieces, WIDTH)
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, pieces))

    def forward(self, ids, places):
        e = self.embed(ids).transpose(1, 2)
        near = F.avg_pool1d(e, 3, 1, 1).transpose(1, 2)[places]
        far = F.avg_pool1d(e, 9, 1, 4).transpose(1, 2)[places]
        return self.head(torch.cat([near, far], 1))


def main():
    torch.manual_seed(0)
    text, vocabulary = invent_language()
    path = os.path.join(sys.argv[1], "corpus.bin")
    with open(path, "wb") as f:
        f.write(text.encode("ascii"))
    corpus = Corpus(path, vocabulary)
    model = ContextModel(corpus.top)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    began, running = time.time(), None
    for step in range(1, 200_001):
        ids, labels = corpus.get_batch()
        places = labels != -100
        loss = F.cross_entropy(model(ids, places), labels[places])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
        if step % 200 == 0:
            print(f"{step:>7}  loss {running:.3f}  {time.time() - began:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
