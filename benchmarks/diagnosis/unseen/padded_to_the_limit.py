"""Ticket routing: read an incoming support message, say which team should get it.

Word-level vocabulary, a small transformer encoder, mean over the words that are there.
"""
import math
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 11
MAX_LEN = 384
BATCH = 6
VOCAB = 3000
TEAMS = ["billing", "shipping", "hardware", "accounts", "returns", "legal"]
EPOCHS = 400
PAD, UNK = 0, 1


def invent_tickets(n, rng):
    """Each team has a few hundred favourite words, the rest is shared."""
    shared = [f"w{i}" for i in range(VOCAB // 2)]
    own = {t: [f"{t}{i}" for i in range(250)] for t in TEAMS}
    tickets = []
    for _ in range(n):
        team = rng.choice(TEAMS)
        length = int(min(220, max(12, rng.lognormvariate(4.0, 0.35))))
        words = [rng.choice(own[team]) if rng.random() < 0.12 else rng.choice(shared) for _ in range(length)]
        tickets.append((" ".join(words), TEAMS.index(team)))
    return tickets


class Vocabulary:
    def __init__(self, texts):
        self.index = {}
        for text in texts:
            for word in text.split():
                self.index.setdefault(word, len(self.index) + 2)

    def __len__(self):
        return len(self.index) + 2

    def encode(self, text):
        return [self.index.get(w, UNK) for w in text.split()][:MAX_LEN]


class Tickets(Dataset):
    def __init__(self, tickets, vocabulary):
        self.rows = [(torch.tensor(vocabulary.encode(t)), team) for t, team in tickets]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = MAX_LEN
    ids = torch.full((len(rows), width), PAD)
    for i, (tokens, _) in enumerate(rows):
        ids[i, : len(tokens)] = tokens
    return ids, ids == PAD, torch.tensor([team for _, team in rows])


class Router(nn.Module):
    def __init__(self, n_words, dim=96, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(n_words, dim, padding_idx=PAD)
        where = torch.arange(1024).unsqueeze(1)
        rate = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        table = torch.zeros(1024, dim)
        table[:, 0::2], table[:, 1::2] = torch.sin(where * rate), torch.cos(where * rate)
        self.register_buffer("table", table)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, len(TEAMS))

    def forward(self, ids, absent):
        h = self.words(ids) + self.table[: ids.shape[1]]
        h = self.encoder(h, src_key_padding_mask=absent)
        there = (~absent).unsqueeze(-1).float()
        return self.out((h * there).sum(1) / there.sum(1))


def main():
    rng = random.Random(SEED)
    torch.manual_seed(SEED)
    tickets = invent_tickets(3000, rng)
    vocabulary = Vocabulary(t for t, _ in tickets)
    loader = DataLoader(Tickets(tickets, vocabulary), batch_size=BATCH, shuffle=True, collate_fn=collate, drop_last=True)
    router = Router(len(vocabulary))
    optimizer = torch.optim.AdamW(router.parameters(), lr=3e-4)
    seen = 0
    for epoch in range(EPOCHS):
        right = total = 0
        for ids, absent, team in loader:
            logits = router(ids, absent)
            loss = nn.functional.cross_entropy(logits, team)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += 1
            if seen % 50 == 0:
                right += (logits.argmax(1) == team).sum().item()
                total += len(team)
                print(f"[{epoch:03d}] step {seen:6d}  loss {loss.item():.3f}  acc {right / total:.2f}", flush=True)


if __name__ == "__main__":
    main()
