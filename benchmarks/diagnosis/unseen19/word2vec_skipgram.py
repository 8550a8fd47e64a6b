"""Skip-gram word vectors with negative sampling (Mikolov et al., 2013), from scratch."""
import os
import random
import tempfile
import time
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DATA_DIR = os.path.join(tempfile.gettempdir(), "word2vec_skipgram_cc")
CORPUS = os.path.join(DATA_DIR, "corpus.txt")

EMBED_DIM = 128
WINDOW = 5
NEGATIVES = 5
BATCH_SIZE = 1024
EPOCHS = 20
LR = 1e-3
MIN_COUNT = 3
SUBSAMPLE = 1e-4


def make_corpus():
    """A made-up language: words belong to topics, and a sentence keeps to one topic."""
    os.makedirs(DATA_DIR, exist_ok=True)
    rng = np.random.default_rng(7)
    syllables = [c + v for c in "bcdfghjklmnprstvz" for v in "aeiou"]
    words = set()
    while len(words) < 45000:
        words.add("".join(rng.choice(syllables, size=rng.integers(2, 5))))
    words = np.array(sorted(words))
    rng.shuffle(words)
    common, rest = words[:200], words[200:]
    topics = np.array_split(rest, 60)
    with open(CORPUS + ".part", "w") as f:
        for _ in range(90000):
            topic = topics[rng.integers(60)]
            length = rng.integers(8, 30)
            ranks = (len(topic) ** rng.random(length)).astype(int) - 1
            sentence = topic[ranks]
            filler = rng.random(length) < 0.35
            sentence = np.where(filler, common[(200 ** rng.random(length)).astype(int) - 1], sentence)
            f.write(" ".join(sentence) + "\n")
    os.replace(CORPUS + ".part", CORPUS)


class Vocab:
    def __init__(self, sentences):
        counts = Counter(w for s in sentences for w in s)
        self.itos = [w for w, c in counts.most_common() if c >= MIN_COUNT]
        self.stoi = {w: i for i, w in enumerate(self.itos)}
        self.freqs = np.array([counts[w] for w in self.itos], dtype=np.float64)
        ratio = self.freqs / self.freqs.sum()
        self.keep_prob = np.minimum(1.0, np.sqrt(SUBSAMPLE / ratio) + SUBSAMPLE / ratio)

    def __len__(self):
        return len(self.itos)


class SkipGram(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.center = nn.Embedding(vocab_size, dim)
        self.context = nn.Embedding(vocab_size, dim)
        nn.init.uniform_(self.center.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    def forward(self, center, context, negatives):
        v = self.center(center)                      # (B, D)
        u = self.context(context)                    # (B, D)
        n = self.context(negatives)                  # (B, K, D)
        positive = F.logsigmoid((v * u).sum(-1))
        negative = F.logsigmoid(-torch.bmm(n, v.unsqueeze(2)).squeeze(2)).sum(-1)
        return -(positive + negative).mean()


def batches(sentences, keep_prob):
    """Go through the corpus in random order and give batches of (center, context)."""
    centers, contexts = [], []
    order = list(range(len(sentences)))
    random.shuffle(order)
    for i in order:
        ids = [w for w in sentences[i] if random.random() < keep_prob[w]]
        for pos, center in enumerate(ids):
            r = random.randint(1, WINDOW)
            for j in range(max(0, pos - r), min(len(ids), pos + r + 1)):
                if j != pos:
                    centers.append(center)
                    contexts.append(ids[j])
        while len(centers) >= BATCH_SIZE:
            yield torch.tensor(centers[:BATCH_SIZE]), torch.tensor(contexts[:BATCH_SIZE])
            centers, contexts = centers[BATCH_SIZE:], contexts[BATCH_SIZE:]


@torch.no_grad()
def neighbours(model, vocab, word, k=6):
    vectors = F.normalize(model.center.weight, dim=1)
    scores = vectors @ vectors[vocab.stoi[word]]
    best = scores.topk(k + 1).indices.tolist()[1:]
    return ", ".join(vocab.itos[i] for i in best)


def main():
    random.seed(0)
    torch.manual_seed(0)
    if not os.path.exists(CORPUS):
        print("writing the corpus ...")
        make_corpus()

    with open(CORPUS) as f:
        sentences = [line.split() for line in f]
    vocab = Vocab(sentences)
    encoded = [[vocab.stoi[w] for w in s if w in vocab.stoi] for s in sentences]
    keep_prob = vocab.keep_prob.tolist()
    print(f"{len(sentences)} sentences, {len(vocab)} words in the vocabulary")

    noise = torch.tensor(vocab.freqs ** 0.75, dtype=torch.float)
    noise /= noise.sum()

    model = SkipGram(len(vocab), EMBED_DIM)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    probes = vocab.itos[200:230:10]

    step = 0
    for epoch in range(EPOCHS):
        running, start = 0.0, time.time()
        for center, context in batches(encoded, keep_prob):
            negatives = torch.multinomial(noise, len(center) * NEGATIVES, replacement=True)
            loss = model(center, context, negatives.view(len(center), NEGATIVES))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step % 200 == 0:
                print(f"epoch {epoch} step {step} loss {running / 200:.4f} ({time.time() - start:.1f} s)")
                running, start = 0.0, time.time()
            if step % 2000 == 0:
                for word in probes:
                    print(f"   {word}: {neighbours(model, vocab, word)}")
    torch.save({"vectors": model.center.weight.data, "words": vocab.itos}, os.path.join(DATA_DIR, "vectors.pt"))


if __name__ == "__main__":
    main()
