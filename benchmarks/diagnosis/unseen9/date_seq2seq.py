"""
Teaching a network to read dates
================================

A tiny encoder/decoder that turns human dates ("3rd of march, 1987") into ISO
dates ("1987-03-03") inside a longer noisy sentence.  Everything is in one file
so that you can follow along.  Part 3 of the "RNNs from the ground up" series.
"""
import json
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = os.path.join(tempfile.gettempdir(), "date_seq2seq")
MONTHS = ["january", "february", "march", "april", "may", "june", "july",
          "august", "september", "october", "november", "december"]
FILLER = ("the meeting was held on ", "born ", "see the letter of ", "due ", "according to the report from ",
          "signed and sealed ", "first seen in print on ", "it rained all day on ")
TAIL = (" in the old town hall", ", as agreed", " or maybe a bit later", "", " before noon", " (revised)")

SRC_LEN = 64
TGT_LEN = 12
BATCH = 64
HIDDEN = 128
EMBED = 48


# ---------------------------------------------------------------- step 1: data
def make_pair(rng):
    y, m, d = rng.randint(1900, 2029), rng.randint(1, 12), rng.randint(1, 28)
    style = rng.randint(0, 3)
    if style == 0:
        human = f"{d} {MONTHS[m - 1]} {y}"
    elif style == 1:
        human = f"{MONTHS[m - 1]} {d}, {y}"
    elif style == 2:
        human = f"{d}.{m}.{y}"
    else:
        human = f"{MONTHS[m - 1][:3]} {d} {y}"
    text = rng.choice(FILLER) + human + rng.choice(TAIL)
    return text[:SRC_LEN], f"{y:04d}-{m:02d}-{d:02d}"


def prepare(n=16000):
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, "pairs.json")
    if not os.path.exists(path):
        rng = random.Random(11)
        pairs = [make_pair(rng) for _ in range(n)]
        with open(path + ".part", "w") as f:
            json.dump(pairs, f)
        os.replace(path + ".part", path)
    with open(path) as f:
        return json.load(f)


class Vocab:
    def __init__(self, texts):
        chars = sorted({c for t in texts for c in t})
        self.itos = ["<pad>", "<bos>", "<eos>"] + chars
        self.stoi = {c: i for i, c in enumerate(self.itos)}

    def encode(self, text, length, bos=False):
        ids = ([1] if bos else []) + [self.stoi[c] for c in text] + ([2] if bos else [])
        return ids + [0] * (length - len(ids))

    def __len__(self):
        return len(self.itos)


# --------------------------------------------------------------- step 2: model
class LSTM(nn.Module):
    """The four gates, exactly as in the drawing of part 2."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.x2 = nn.ModuleDict({k: nn.Linear(n_in, n_hidden) for k in ("input", "forget_", "cell", "output")})
        self.h2 = nn.ModuleDict({k: nn.Linear(n_hidden, n_hidden) for k in ("input", "forget_", "cell", "output")})
        for w in self.parameters():
            nn.init.uniform_(w, -n_hidden ** -0.5, n_hidden ** -0.5)

    def forward(self, x):
        h = c = x.new_zeros(x.size(0), self.n_hidden)
        seen = []
        for t in range(x.size(1)):
            letter = x[:, t]
            i = torch.sigmoid(self.x2["input"](letter) + self.h2["input"](h))
            f = torch.sigmoid(self.x2["forget_"](letter) + self.h2["forget_"](h))
            g = torch.tanh(self.x2["cell"](letter) + self.h2["cell"](h))
            o = torch.sigmoid(self.x2["output"](letter) + self.h2["output"](h))
            c = f * c + i * g
            h = o * torch.tanh(c)
            seen.append(h)
        return torch.stack(seen, 1), h


class Encoder(nn.Module):
    """Reads the sentence in both directions and returns one vector per letter."""

    def __init__(self, n_tokens):
        super().__init__()
        self.embed = nn.Embedding(n_tokens, EMBED, padding_idx=0)
        self.left = LSTM(EMBED, HIDDEN)
        self.right = LSTM(EMBED, HIDDEN)

    def forward(self, src):
        e = self.embed(src)
        a, h = self.left(e)
        b, g = self.right(e.flip(1))
        return torch.cat([a, b.flip(1)], dim=2), torch.cat([h, g], dim=1)


class Decoder(nn.Module):
    """Writes the date letter by letter, looking back at the sentence each time."""

    def __init__(self, n_tokens):
        super().__init__()
        self.embed = nn.Embedding(n_tokens, EMBED)
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)
        self.query = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.cell = nn.GRUCell(EMBED + 2 * HIDDEN, HIDDEN)
        self.out = nn.Linear(3 * HIDDEN, n_tokens)

    def forward(self, memory, state, tgt_in, mask):
        h = torch.tanh(self.bridge(state))
        context = memory.mean(1)
        e = self.embed(tgt_in)
        logits = []
        # the attention result feeds the next cell, so this one has to be a loop
        for t in range(tgt_in.size(1)):
            h = self.cell(torch.cat([e[:, t], context], 1), h)
            score = torch.bmm(memory, self.query(h).unsqueeze(2)).squeeze(2)
            weight = score.masked_fill(mask, -1e4).softmax(1)
            context = torch.bmm(weight.unsqueeze(1), memory).squeeze(1)
            logits.append(self.out(torch.cat([h, context], 1)))
        return torch.stack(logits, 1)


class DateReader(nn.Module):
    def __init__(self, n_src, n_tgt):
        super().__init__()
        self.encoder = Encoder(n_src)
        self.decoder = Decoder(n_tgt)

    def forward(self, src, tgt_in):
        memory, state = self.encoder(src)
        return self.decoder(memory, state, tgt_in, src == 0)


# ------------------------------------------------------------ step 3: training
def main():
    torch.manual_seed(0)
    random.seed(0)
    pairs = prepare()
    src_vocab = Vocab([p[0] for p in pairs])
    tgt_vocab = Vocab([p[1] for p in pairs])
    src = torch.tensor([src_vocab.encode(a, SRC_LEN) for a, _ in pairs])
    tgt = torch.tensor([tgt_vocab.encode(b, TGT_LEN, bos=True) for _, b in pairs])
    print("sentences:", len(src), "letters:", len(src_vocab), len(tgt_vocab))

    net = DateReader(len(src_vocab), len(tgt_vocab))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    print("weights:", sum(p.numel() for p in net.parameters()))

    step, t0 = 0, time.time()
    for epoch in range(1, 101):
        order = list(range(len(src)))
        random.shuffle(order)
        for i in range(0, len(order) - BATCH + 1, BATCH):
            idx = order[i:i + BATCH]
            x, y = src[idx], tgt[idx]
            logits = net(x, y[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, len(tgt_vocab)), y[:, 1:].reshape(-1), ignore_index=0)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            step += 1
            right = (logits.argmax(2) == y[:, 1:]).all(1).float().mean().item()
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} exact {right:.2f} "
                      f"({step * BATCH / (time.time() - t0):.0f} sentences/s)", flush=True)


if __name__ == "__main__":
    main()
