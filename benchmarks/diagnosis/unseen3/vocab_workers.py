"""Topic classification of support tickets: hashed vocabulary + bag of embeddings, curriculum in short rounds."""
import argparse
import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "support_tickets"))
    ap.add_argument("--vocab-size", type=int, default=150_000)
    ap.add_argument("--tickets", type=int, default=640)
    ap.add_argument("--rounds", type=int, default=300)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--workers", type=int, default=1)
    return ap.parse_args()


def word(k):
    return "w" + format(k * 2654435761 % (1 << 32), "08x")


def generate(a):
    os.makedirs(a.folder, exist_ok=True)
    vocab_file = os.path.join(a.folder, "vocab.json")
    if not os.path.exists(vocab_file):
        with open(vocab_file + "~", "w") as f:
            json.dump({word(k): {"id": k, "df": k % 977 + 1} for k in range(a.vocab_size)}, f)
        os.replace(vocab_file + "~", vocab_file)
    ticket_file = os.path.join(a.folder, "tickets.jsonl")
    if not os.path.exists(ticket_file):
        r = random.Random(2)
        with open(ticket_file, "w") as f:
            for _ in range(a.tickets):
                topic = r.randrange(8)
                words = [word(r.randrange(a.vocab_size // 8) * 8 + (topic if r.random() < 0.4 else r.randrange(8)))
                         for _ in range(120)]
                f.write(json.dumps({"topic": topic, "text": " ".join(words)}) + "\n")
    return vocab_file, ticket_file


class Vocabulary:
    def __init__(self, path):
        with open(path) as f:
            entries = json.load(f)
        self.index = {w: e["id"] for w, e in entries.items()}
        self.rare = {w for w, e in entries.items() if e["df"] < 3}

    def encode(self, text):
        return [self.index.get(w, 0) for w in text.split() if w not in self.rare]


class Tickets(Dataset):
    def __init__(self, vocab_file, ticket_file):
        self.vocab_file, self.vocab = vocab_file, None
        with open(ticket_file) as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor(self.vocab.encode(row["text"])), row["topic"]


def open_vocab(worker_id):
    ds = get_worker_info().dataset
    ds.vocab = Vocabulary(ds.vocab_file)


def bag(items):
    ids, topics = zip(*items)
    offsets = torch.tensor([0] + [len(i) for i in ids[:-1]]).cumsum(0)
    return torch.cat(ids), offsets, torch.tensor(topics)


class Classifier(nn.Module):
    def __init__(self, n_words, dim=64, topics=8):
        super().__init__()
        self.emb = nn.EmbeddingBag(n_words, dim, sparse=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, topics))

    def forward(self, ids, offsets):
        return self.mlp(self.emb(ids, offsets))


def main():
    a = parse()
    torch.manual_seed(0)
    ds = Tickets(*generate(a))
    loader = DataLoader(ds, batch_size=a.batch, shuffle=True, collate_fn=bag,
                        num_workers=a.workers, worker_init_fn=open_vocab)
    net = Classifier(a.vocab_size)
    opt = torch.optim.SGD(net.parameters(), lr=0.3)
    t, seen = time.time(), 0
    for rnd in range(a.rounds):
        total = 0.0
        for ids, offsets, topics in loader:
            loss = nn.functional.cross_entropy(net(ids, offsets), topics)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            seen += len(topics)
        print(f"round {rnd} loss {total / len(loader):.4f} {seen / (time.time() - t):.0f} tickets/s", flush=True)


if __name__ == "__main__":
    main()
