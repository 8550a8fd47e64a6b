"""BiLSTM-CRF tagger for entities in clinical notes (BIO tags, JSON lines)."""
import argparse
import json
import os
import random
import tempfile
from collections import Counter

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

DATA = os.path.join(tempfile.gettempdir(), "clinical_entities_data")
TYPES = ["PROBLEM", "TEST", "TREATMENT"]
TAGS = ["O"] + [p + "-" + t for t in TYPES for p in ("B", "I")]


def make_data(folder, seed=1):
    """Notes from a small template grammar; sentence lengths are log-normal as in discharge letters."""
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]

    def word(n):
        return "".join(rng.choice(syllables) for _ in range(n))

    common = [word(rng.choice([1, 2, 2, 3])) for _ in range(3000)]
    entity = {t: [word(rng.choice([2, 3, 4])) for _ in range(600)] for t in TYPES}
    cues = {"PROBLEM": ["denies", "has", "with"], "TEST": ["ordered", "showed"], "TREATMENT": ["given", "started"]}
    for split, n in (("valid", 1200), ("train", 12000)):
        with open(os.path.join(folder, split + ".tmp"), "w") as f:
            for _ in range(n):
                length = max(4, min(110, int(rng.lognormvariate(2.8, 0.55))))
                tokens, tags = [], []
                while len(tokens) < length:
                    if rng.random() < 0.12:
                        t = rng.choice(TYPES)
                        tokens.append(rng.choice(cues[t]))
                        tags.append("O")
                        for k in range(rng.choice([1, 1, 2, 3])):
                            tokens.append(rng.choice(entity[t] if rng.random() < 0.85 else common))
                            tags.append(("B-" if k == 0 else "I-") + t)
                    else:
                        tokens.append(common[min(int(rng.expovariate(1 / 400)), len(common) - 1)])
                        tags.append("O")
                f.write(json.dumps({"tokens": tokens, "tags": tags}) + "\n")
        os.rename(os.path.join(folder, split + ".tmp"), os.path.join(folder, split + ".jsonl"))


def read_jsonl(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class NotesDataset(Dataset):
    def __init__(self, sentences, vocab, max_len):
        self.sentences = sentences
        self.vocab = vocab
        self.max_len = max_len

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        s = self.sentences[i]
        words = [self.vocab.get(w, 1) for w in s["tokens"]][:self.max_len]
        tags = [TAGS.index(t) for t in s["tags"]][:self.max_len]
        pad = self.max_len - len(words)
        mask = [1] * len(words) + [0] * pad
        return (torch.tensor(words + [0] * pad), torch.tensor(tags + [0] * pad),
                torch.tensor(mask, dtype=torch.bool))


class CRF(nn.Module):
    def __init__(self, n_tags):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(n_tags))
        self.end = nn.Parameter(torch.zeros(n_tags))
        self.trans = nn.Parameter(torch.randn(n_tags, n_tags) * 0.1)

    def gold_score(self, emit, tags, mask):
        m = mask.float()
        score = self.start[tags[:, 0]] + (emit.gather(2, tags.unsqueeze(2)).squeeze(2) * m).sum(1)
        score = score + (self.trans[tags[:, :-1], tags[:, 1:]] * m[:, 1:]).sum(1)
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        return score + self.end[last]

    def log_partition(self, emit, mask):
        alpha = self.start + emit[:, 0]
        for t in range(1, emit.shape[1]):
            new = torch.logsumexp(alpha.unsqueeze(2) + self.trans, dim=1) + emit[:, t]
            alpha = torch.where(mask[:, t:t + 1], new, alpha)
        return torch.logsumexp(alpha + self.end, dim=1)

    def forward(self, emit, tags, mask):
        return (self.log_partition(emit, mask) - self.gold_score(emit, tags, mask)).mean()

    def decode(self, emit, mask):
        score = self.start + emit[:, 0]
        back = []
        keep = torch.arange(emit.shape[2]).expand(emit.shape[0], -1)
        for t in range(1, emit.shape[1]):
            best, arg = (score.unsqueeze(2) + self.trans).max(dim=1)
            m = mask[:, t:t + 1]
            score = torch.where(m, best + emit[:, t], score)
            back.append(torch.where(m, arg, keep))
        tag = (score + self.end).argmax(1)
        path = [tag]
        for arg in reversed(back):
            tag = arg.gather(1, tag.unsqueeze(1)).squeeze(1)
            path.append(tag)
        return torch.stack(path[::-1], dim=1)


class BiLSTMCRF(nn.Module):
    def __init__(self, vocab_size, n_tags, emb_dim, hidden):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb_dim, padding_idx=0)
        self.drop = nn.Dropout(0.3)
        self.lstm = nn.LSTM(emb_dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, n_tags)
        self.crf = CRF(n_tags)

    def emissions(self, words):
        h, _ = self.lstm(self.drop(self.emb(words)))
        return self.out(self.drop(h))

    def forward(self, words, tags, mask):
        return self.crf(self.emissions(words), tags, mask)

    def decode(self, words, mask):
        return self.crf.decode(self.emissions(words), mask)


def spans(tags):
    found, start = set(), None
    for i, t in enumerate(list(tags) + [0]):
        name = TAGS[t]
        if start is not None and not name.startswith("I-"):
            found.add((start, i, TAGS[tags[start]][2:]))
            start = None
        if name.startswith("B-"):
            start = i
    return found


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    tp = n_pred = n_gold = 0
    for words, tags, mask in loader:
        pred = model.decode(words, mask)
        for p, g, n in zip(pred.tolist(), tags.tolist(), mask.sum(1).tolist()):
            p, g = spans(p[:n]), spans(g[:n])
            tp, n_pred, n_gold = tp + len(p & g), n_pred + len(p), n_gold + len(g)
    precision, recall = tp / max(n_pred, 1), tp / max(n_gold, 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--emb-dim", type=int, default=100)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    if not os.path.exists(os.path.join(DATA, "train.jsonl")):
        make_data(DATA)

    train = read_jsonl(os.path.join(DATA, "train.jsonl"))
    valid = read_jsonl(os.path.join(DATA, "valid.jsonl"))
    counts = Counter(w for s in train for w in s["tokens"])
    vocab = {w: i + 2 for i, (w, c) in enumerate(counts.most_common()) if c > 1}
    train_loader = DataLoader(NotesDataset(train, vocab, args.max_len), args.batch_size, shuffle=True)
    valid_loader = DataLoader(NotesDataset(valid, vocab, args.max_len), args.batch_size)

    model = BiLSTMCRF(len(vocab) + 2, len(TAGS), args.emb_dim, args.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print("epoch    loss    prec     rec      f1")
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for step, (words, tags, mask) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = model(words, tags, mask)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
            if step % 100 == 99:
                print("  step %4d  loss %.3f" % (step + 1, total / (step + 1)), flush=True)
        print("%5d  %6.3f  %.4f  %.4f  %.4f" % (epoch, total / len(train_loader), *evaluate(model, valid_loader)),
              flush=True)


if __name__ == "__main__":
    main()
