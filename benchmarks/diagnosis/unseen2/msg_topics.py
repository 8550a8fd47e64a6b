"""Topic classifier for noisy chat messages: words -> hashed character n-grams (as fastText does) -> mean embedding -> small transformer over the words.
Typing errors are thrown in on the fly, so that the model gets robust against them."""
import queue
import random
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)  # two cores here: one to compute, one to read

BUCKETS, WORDS, BATCH, CLASSES, EPOCHS = 20000, 48, 32, 12, 60


def make_corpus(n=8000, seed=3):
    rng = random.Random(seed)
    syll = [c + v for c in "bcdfghklmnprstvz" for v in "aeiou"]
    lexicon = ["".join(rng.choice(syll) for _ in range(rng.randint(2, 5))) for _ in range(6000)]
    docs, labels = [], []
    for _ in range(n):
        y = rng.randrange(CLASSES)
        own = lexicon[400 * y:400 * (y + 1)]
        docs.append([rng.choice(own) if rng.random() < 0.25 else rng.choice(lexicon)
                     for _ in range(rng.randint(60, 100))])
        labels.append(y)
    return docs, labels


def corrupt(w):
    if random.random() > 0.15:
        return w
    i = random.randrange(len(w) - 1)
    return w[:i] + random.choice((w[i + 1] + w[i] + w[i + 2:], w[i + 1:], w[i] + w[i:]))


def ngrams(word):
    s = ("<" + word + ">").encode()
    out = []
    for n in (3, 4, 5, 6):
        for i in range(len(s) - n + 1):
            h = 2166136261
            for c in s[i:i + n]:
                h = ((h ^ c) * 16777619) & 0xFFFFFFFF
            out.append(h % BUCKETS)
    return out


def encode(doc):
    start = random.randint(0, len(doc) - WORDS)
    ids, offs = [], []
    for w in doc[start:start + WORDS]:
        offs.append(len(ids))
        ids.extend(ngrams(corrupt(w)))
    return ids, offs


def collate(items):
    ids, offs, ys = [], [], []
    for (i, o), y in items:
        base = len(ids)
        offs.extend(base + k for k in o)
        ids.extend(i)
        ys.append(y)
    return tuple(torch.from_numpy(np.array(a, dtype=np.int64)) for a in (ids, offs, ys))


class Reader(threading.Thread):
    def __init__(self, docs, labels, epochs):
        super().__init__(daemon=True)
        self.docs, self.labels, self.epochs = docs, labels, epochs
        self.q = queue.Queue(maxsize=4)

    def run(self):
        for _ in range(self.epochs):
            order = np.random.permutation(len(self.docs)).tolist()
            for k in range(0, len(order) - BATCH + 1, BATCH):
                self.q.put(collate([(encode(self.docs[j]), self.labels[j]) for j in order[k:k + BATCH]]))
        self.q.put(None)

    def __iter__(self):
        return iter(self.q.get, None)


class Net(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, d, mode="mean")
        self.pos = nn.Parameter(torch.randn(WORDS, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, activation="gelu", batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, CLASSES)

    def forward(self, ids, offs):
        x = self.bag(ids, offs).view(-1, WORDS, self.pos.shape[1]) + self.pos
        return self.out(self.enc(x).mean(1))


def main():
    docs, labels = make_corpus()
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    step, t0 = 0, time.time()
    reader = Reader(docs, labels, EPOCHS)
    reader.start()
    for ids, offs, y in reader:
        loss = F.cross_entropy(net(ids, offs), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
