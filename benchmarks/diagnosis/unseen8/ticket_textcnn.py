#!/usr/bin/env python
# coding: utf-8
# # Support ticket routing - TextCNN baseline (exported from the notebook)

# In[1]:
import html
import os
import random
import re
import tempfile
import time
from collections import Counter

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = 42
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)

INPUT_DIR = os.path.join(tempfile.gettempdir(), "ticket_textcnn")
CSV = os.path.join(INPUT_DIR, "tickets.csv")
MAX_LEN = 160
VOCAB = 12000
BS = 64
EPOCHS = 200
QUEUES = ["billing", "network", "hardware", "account", "shipping", "returns"]

# In[2]: the data set
STEMS = ("invoice refund charge payment card order parcel courier delivery router signal outage modem cable latency "
         "screen battery keyboard charger fan login password email profile reset return label exchange defect box "
         "receipt price discount tax subscription plan upgrade cancel agent phone chat wait reply manager supervisor "
         "install update driver windows android browser cookie cache timeout error code blank crash freeze").split()
FILLER = ("the a an i we you they it was is are have had been please could would not do does still again today "
          "yesterday since after before when because with without about from very really just also but and or so").split()
SUFFIXES = ["", "s", "ed", "ing", "'s", "able"]


def fake_ticket(rng, queue):
    words = []
    for _ in range(rng.randint(160, 320)):
        r = rng.random()
        if r < 0.5:
            words.append(rng.choice(FILLER))
        elif r < 0.58:
            words.append(STEMS[(queue * 5 + rng.randrange(14)) % len(STEMS)] + rng.choice(SUFFIXES))
        elif r < 0.90:
            words.append(rng.choice(STEMS) + rng.choice(SUFFIXES))
        elif r < 0.93:
            words.append("#%d" % rng.randrange(10 ** 6))
        elif r < 0.95:
            words.append("user%d@mail%d.example.com" % (rng.randrange(900), rng.randrange(9)))
        elif r < 0.97:
            words.append("https://shop.example.com/o/%d?ref=%s" % (rng.randrange(10 ** 5), rng.choice(STEMS)))
        else:
            words.append(rng.choice(["<br/>", "&amp;", "&quot;ok&quot;", "<b>urgent</b>", "!!!", "$%d.99" % rng.randrange(400),
                                     "2024-%02d-%02d" % (rng.randint(1, 12), rng.randint(1, 28))]))
        if rng.random() < 0.08:
            words[-1] += rng.choice([".", ",", "...", "?", "!!"])
    text = " ".join(words)
    return text[0].upper() + text[1:]


if not os.path.exists(CSV):
    os.makedirs(INPUT_DIR, exist_ok=True)
    rng = random.Random(SEED)
    rows = [(q, fake_ticket(rng, q)) for q in (rng.randrange(len(QUEUES)) for _ in range(4500))]
    pd.DataFrame(rows, columns=["queue", "text"]).to_csv(CSV + ".part", index=False)
    os.replace(CSV + ".part", CSV)

# In[3]: cleaning
CONTRACTIONS = {r"n\'t\b": " not", r"\'re\b": " are", r"\'s\b": "", r"\'ll\b": " will", r"\'ve\b": " have"}
STOP = {"the", "a", "an", "is", "are", "was", "it", "and", "or"}


def clean(text):
    text = html.unescape(text).lower()
    text = re.sub(r"<[^>]+>", " ", text)
    text = re.sub(r"https?://\S+", " urltok ", text)
    text = re.sub(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", " mailtok ", text)
    text = re.sub(r"\b\d{4}-\d{2}-\d{2}\b", " datetok ", text)
    text = re.sub(r"\$\s?\d+(\.\d+)?", " pricetok ", text)
    text = re.sub(r"#\d+", " idtok ", text)
    for pattern, repl in CONTRACTIONS.items():
        text = re.sub(pattern, repl, text)
    text = re.sub(r"([.!?])\1+", r" \1 reptok ", text)
    return re.sub(r"[^a-z0-9.!? ]+", " ", text)


def tokenize(text):
    toks = []
    for tok in re.findall(r"[a-z]+|\d+|[.!?]", clean(text)):
        if tok in STOP:
            continue
        tok = re.sub(r"(ing|able|ed|s)$", "", tok) if len(tok) > 5 else tok
        tok = re.sub(r"(.)\1{2,}", r"\1\1", tok)
        toks.append(re.sub(r"^\d+$", "numtok", tok))
    return toks


def build_vocab(texts):
    c = Counter()
    for t in texts:
        c.update(tokenize(t))
    itos = ["<pad>", "<unk>"] + [w for w, _ in c.most_common(VOCAB - 2)]
    return {w: i for i, w in enumerate(itos)}


def encode(text, vocab):
    ids = [vocab.get(t, 1) for t in tokenize(text)][:MAX_LEN]
    return np.array(ids + [0] * (MAX_LEN - len(ids)), dtype=np.int64)


class Tickets(Dataset):
    def __init__(self, df, vocab, word_drop=0.05):
        self.texts = df["text"].tolist()
        self.y = df["queue"].to_numpy()
        self.vocab = vocab
        self.word_drop = word_drop

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        ids = encode(self.texts[i], self.vocab)
        drop = torch.rand(MAX_LEN).numpy() < self.word_drop
        return torch.from_numpy(np.where(drop, 1, ids)), int(self.y[i])


# In[4]: the model
class TextCNN(nn.Module):
    def __init__(self, n_vocab, dim=40, ch=32, n_out=len(QUEUES)):
        super().__init__()
        self.emb = nn.Embedding(n_vocab, dim, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(dim, ch, k, padding=k // 2) for k in (2, 3, 5)])
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(3 * ch, n_out)

    def forward(self, x):
        e = self.emb(x).transpose(1, 2)
        pooled = [torch.relu(c(e)).amax(dim=2) for c in self.convs]
        return self.fc(self.drop(torch.cat(pooled, 1)))


# In[5]: training
def run():
    df = pd.read_csv(CSV)
    print(df.queue.value_counts().to_dict())
    valid = df.sample(frac=0.05, random_state=SEED)
    train = df.drop(valid.index)
    vocab = build_vocab(train.text.head(1500))
    print("vocab", len(vocab))
    loader = DataLoader(Tickets(train, vocab), batch_size=BS, shuffle=True, num_workers=2,
                        drop_last=True, persistent_workers=True)
    model = TextCNN(len(vocab))
    opt = torch.optim.Adam(model.parameters(), lr=7e-4)
    sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
    best = 1e9
    for epoch in range(EPOCHS):
        tic, losses, hits = time.time(), [], 0
        for step, (x, y) in enumerate(loader):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            hits += (out.argmax(1) == y).sum().item()
            if step % 30 == 0:
                print("epoch %d step %d loss %.4f" % (epoch, step, np.mean(losses[-30:])), flush=True)
        sch.step()
        if np.mean(losses) < best:
            best = np.mean(losses)
            torch.save(model.state_dict(), os.path.join(INPUT_DIR, "best.pth"))
        print("epoch %d: loss %.4f acc %.3f (%.1f s)" % (epoch, np.mean(losses), hits / (len(loader) * BS), time.time() - tic))


if __name__ == "__main__":
    run()
