import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FOLDER = os.path.join(tempfile.gettempdir(), "skipgram")
VOCAB = 300_000
SENTENCES = 60_000
SENT_LEN = 24
TOPICS = 300


def build_corpus():
    path = os.path.join(FOLDER, "corpus.npz")
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        rng = np.random.default_rng(99)
        topic_of_sentence = rng.integers(0, TOPICS, SENTENCES)
        width = VOCAB // TOPICS
        local = (rng.random((SENTENCES, SENT_LEN)) ** 3 * width).astype(np.int64)
        tokens = local * TOPICS + topic_of_sentence[:, None]
        stop = rng.random(tokens.shape) < 0.2
        tokens[stop] = rng.integers(0, 200, stop.sum())
        counts = np.bincount(tokens.ravel(), minlength=VOCAB)
        np.savez(path, tokens=tokens.astype(np.int32), counts=counts)
    z = np.load(path)
    return z["tokens"], z["counts"]


class SkipGramStream(IterableDataset):
    """Streams ready-made batches (center, context, negatives)."""

    def __init__(self, tokens, counts, window=3, negatives=5, sentences_per_batch=24, seed=0):
        self.tokens = tokens
        self.window = window
        self.k = negatives
        self.per_batch = sentences_per_batch
        self.seed = seed
        self.epoch = 0
        freq = counts / counts.sum()
        noise = (counts + 1.0) ** 0.75
        self.noise = noise / noise.sum()
        self.keep = np.minimum(1.0, np.sqrt(1e-3 / np.maximum(freq, 1e-12)))

    def __len__(self):
        return len(self.tokens) // self.per_batch

    def pairs(self, sentence, rng):
        sentence = sentence[rng.random(len(sentence)) < self.keep[sentence]]
        n = len(sentence)
        i, j = np.nonzero(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= rng.integers(2, self.window + 1))
        off = i != j
        return sentence[i[off]], sentence[j[off]]

    def draw_negatives(self, n, rng):
        return rng.choice(VOCAB, size=(n, self.k), p=self.noise)

    def __iter__(self):
        info = get_worker_info()
        wid, nw = (info.id, info.num_workers) if info else (0, 1)
        self.epoch += 1
        order = np.random.default_rng(self.seed + self.epoch).permutation(len(self.tokens))
        rng = np.random.default_rng((self.seed, self.epoch, wid))
        mine = order[wid::nw]
        for start in range(0, len(mine) - self.per_batch + 1, self.per_batch):
            centers, contexts, negs = [], [], []
            for s in mine[start:start + self.per_batch]:
                c, o = self.pairs(self.tokens[s], rng)
                centers.append(c)
                contexts.append(o)
                negs.append(self.draw_negatives(len(c), rng))
            yield (torch.from_numpy(np.concatenate(centers)).long(),
                   torch.from_numpy(np.concatenate(contexts)).long(),
                   torch.from_numpy(np.concatenate(negs)).long())


class SkipGram(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.u = nn.Embedding(vocab, dim, sparse=True)
        self.v = nn.Embedding(vocab, dim, sparse=True)
        nn.init.uniform_(self.u.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.v.weight)

    def forward(self, center, context, negative):
        c = self.u(center)
        pos = (c * self.v(context)).sum(1)
        neg = torch.bmm(self.v(negative), c.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


def nearest(model, word, k=5):
    w = F.normalize(model.u.weight.detach()[:5000], dim=1)
    return (w @ w[word]).topk(k + 1).indices[1:].tolist()


def train(epochs=500, dim=48, lr=1e-2):
    torch.manual_seed(0)
    tokens, counts = build_corpus()
    stream = SkipGramStream(tokens, counts)
    loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=True)
    model = SkipGram(VOCAB, dim)
    opt = torch.optim.SparseAdam(list(model.parameters()), lr=lr)
    step, pairs, t0 = 0, 0, time.time()
    for epoch in range(epochs):
        running = 0.0
        for center, context, negative in loader:
            loss = model(center, context, negative)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            step += 1
            pairs += len(center)
            if step % 100 == 0:
                print(f"epoch {epoch} step {step} loss {running / 100:.4f} kpairs/s {pairs / 1e3 / (time.time() - t0):.1f}",
                      flush=True)
                running = 0.0
        print("nearest to 1234:", nearest(model, 1234))


if __name__ == "__main__":
    train()
