"""Assign clinical-style notes to departments: our own BPE and a small text CNN."""
import argparse
import collections
import json
import math
import os
import random
import re
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "note_departments")
WORD = re.compile(r" ?[a-z]+| ?[0-9]+| ?[^a-z0-9\s]+|\s+")


def get_config():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--notes", type=int, default=12000)
    p.add_argument("--merges", type=int, default=500)
    p.add_argument("--block", type=int, default=416)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--departments", type=int, default=16)
    p.add_argument("--width", type=int, default=24)
    p.add_argument("--filters", type=int, default=32)
    p.add_argument("--kernels", type=int, nargs="+", default=[3, 5])
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--print-freq", type=int, default=20)
    return p.parse_args()


def write_notes(path, count, departments):
    rng = random.Random(7)
    onset = ["br", "c", "d", "gl", "h", "k", "l", "m", "n", "p", "ph", "r", "s", "st", "t", "v", "tr", "ch"]
    nucleus = ["a", "e", "i", "o", "u", "io", "ea", "y"]
    coda = ["", "", "n", "r", "s", "m", "l", "x", "nd", "st"]
    lexicon = set()
    while len(lexicon) < 6000:
        lexicon.add("".join(rng.choice(onset) + rng.choice(nucleus) + rng.choice(coda)
                            for _ in range(rng.choice((1, 2, 3, 3, 4)))))
    lexicon = sorted(lexicon)
    rng.shuffle(lexicon)
    weights = [1.0 / (rank + 5) for rank in range(len(lexicon))]
    jargon = [rng.sample(lexicon, 60) for _ in range(departments)]
    with open(path + ".tmp", "w") as f:
        for _ in range(count):
            words = rng.choices(lexicon, weights, k=rng.randint(90, 130))
            label = rng.randrange(departments)
            for i in rng.sample(range(len(words)), 12):
                words[i] = rng.choice(jargon[label])
            for i in range(6, len(words), 11):
                words[i] = f"{words[i]}, {rng.randint(1, 200)} mg."
            f.write(json.dumps({"text": " ".join(words), "department": label}) + "\n")
    os.replace(path + ".tmp", path)


def merge_pair(symbols, first, second):
    merged, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and symbols[i] == first and symbols[i + 1] == second:
            merged.append(first + second)
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return tuple(merged)


def learn_merges(texts, count):
    freq = collections.Counter(w for t in texts for w in WORD.findall(t))
    vocab = {tuple(w): n for w, n in freq.most_common(2000)}
    merges = []
    for _ in range(count):
        pairs = collections.Counter()
        for symbols, n in vocab.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = pairs.most_common(1)[0][0]
        merges.append(best)
        vocab = {(merge_pair(s, *best) if best[0] in s else s): n for s, n in vocab.items()}
    return merges


def prepare(cfg):
    os.makedirs(ROOT, exist_ok=True)
    notes = os.path.join(ROOT, f"notes_{cfg.notes}.jsonl")
    merges = os.path.join(ROOT, f"merges_{cfg.notes}_{cfg.merges}.json")
    if not os.path.exists(notes):
        write_notes(notes, cfg.notes, cfg.departments)
    if not os.path.exists(merges):
        with open(notes) as f:
            texts = [json.loads(line)["text"] for _, line in zip(range(2000), f)]
        with open(merges + ".tmp", "w") as f:
            json.dump(learn_merges(texts, cfg.merges), f)
        os.replace(merges + ".tmp", merges)
    return notes, merges


class BPETokenizer:
    def __init__(self, merges):
        merges = [tuple(pair) for pair in merges]
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        alphabet = [chr(c) for c in range(32, 127)]
        tokens = ["<pad>", "<eos>", "<unk>"] + alphabet + [a + b for a, b in merges]
        self.ids = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
        self.pad, self.eos, self.unk = 0, 1, 2

    def __len__(self):
        return len(self.ids)

    def bpe(self, word):
        symbols = tuple(word)
        while len(symbols) > 1:
            pair = min(zip(symbols, symbols[1:]), key=lambda p: self.ranks.get(p, math.inf))
            if pair not in self.ranks:
                break
            symbols = merge_pair(symbols, *pair)
        return [self.ids.get(s, self.unk) for s in symbols]

    def encode(self, text):
        out = []
        for word in WORD.findall(text):
            out.extend(self.bpe(word))
        out.append(self.eos)
        return out


class NoteDataset(Dataset):
    def __init__(self, path, tokenizer, block):
        with open(path) as f:
            self.notes = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.block = block

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, i):
        note = self.notes[i]
        ids = self.tokenizer.encode(note["text"])[:self.block]
        ids += [self.tokenizer.pad] * (self.block - len(ids))
        return torch.tensor(ids), note["department"]


class NoteCNN(nn.Module):
    """Embedding, two widths of convolution, max over the note, department."""

    def __init__(self, vocab, cfg):
        super().__init__()
        self.tok = nn.Embedding(vocab, cfg.width)
        self.convs = nn.ModuleList(nn.Conv1d(cfg.width, cfg.filters, k) for k in cfg.kernels)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(cfg.filters * len(cfg.kernels), cfg.departments)

    def forward(self, x):
        h = self.tok(x).transpose(1, 2)
        h = torch.cat([F.relu(conv(h).amax(dim=2)) for conv in self.convs], dim=1)
        return self.head(self.drop(h))


def main():
    cfg = get_config()
    torch.manual_seed(0)
    notes, merges = prepare(cfg)
    with open(merges) as f:
        tokenizer = BPETokenizer(json.load(f))
    dataset = NoteDataset(notes, tokenizer, cfg.block)
    loader = DataLoader(dataset, batch_size=cfg.batch, shuffle=True, drop_last=True, num_workers=cfg.workers,
                        persistent_workers=True, prefetch_factor=4)
    model = NoteCNN(len(tokenizer), cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.1)
    total = cfg.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=total)
    print(f"{len(dataset)} notes, vocab {len(tokenizer)}, {total} steps", flush=True)
    step, start, meter = 0, time.time(), torch.zeros(())
    for epoch in range(cfg.epochs):
        for ids, department in loader:
            loss = F.cross_entropy(model(ids), department)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            meter += loss.detach()
            step += 1
            if step % cfg.print_freq == 0:
                print(f"epoch {epoch} step {step}/{total} loss {meter.item() / cfg.print_freq:.3f} "
                      f"{step / (time.time() - start):.1f} it/s", flush=True)
                meter.zero_()


if __name__ == "__main__":
    main()
