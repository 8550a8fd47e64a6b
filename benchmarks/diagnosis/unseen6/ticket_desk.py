# Routes support tickets to a queue with a small transformer encoder.
import math
import random
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CFG = {
    "data": {
        "tickets": 4000,
        "queues": 8,
        "vocab": 6000,
        "max_len": 384,
        "workers": 1,
    },
    "model": {
        "dim": 96,
        "heads": 4,
        "layers": 2,
        "ff": 256,
        "dropout": 0.1,
    },
    "train": {
        "batch": 8,
        "epochs": 30,
        "lr": 5e-4,
        "warmup": 100,
        "clip": 1.0,
        "log_every": 20,
    },
    "seed": 11,
}

PAD, UNK, CLS = 0, 1, 2
TOPICS = ["billing", "login", "refund", "shipping", "outage", "mobile", "api", "account"]


class TicketWriter:
    """Writes fake tickets: some topical words, some filler, some typos and a signature."""

    def __init__(self, rng):
        self.rng = rng
        syll = ["ka", "lo", "mi", "ter", "ne", "su", "pra", "vo", "den", "ri", "sta", "ul"]
        mk = lambda n: "".join(rng.choice(syll) for _ in range(n))
        self.topical = {t: [t] + [mk(3) for _ in range(60)] for t in TOPICS}
        self.filler = [mk(rng.randint(1, 2)) for _ in range(800)]

    def write(self, topic):
        r = self.rng
        n = min(600, max(8, int(r.lognormvariate(4.1, 0.45))))
        words = []
        for _ in range(n):
            u = r.random()
            if u < 0.10:
                words.append(r.choice(self.topical[topic]))
            elif u < 0.14:
                words.append(r.choice(self.topical[r.choice(TOPICS)]))
            else:
                words.append(r.choice(self.filler))
        return " ".join(words)


def build_vocab(texts, size):
    counts = {}
    for t in texts:
        for w in t.split():
            counts[w] = counts.get(w, 0) + 1
    common = sorted(counts, key=counts.get, reverse=True)[: size - 3]
    return {w: i + 3 for i, w in enumerate(common)}


class Tickets(Dataset):
    def __init__(self, texts, labels, vocab, max_len):
        self.ids = [[CLS] + [vocab.get(w, UNK) for w in t.split()][: max_len - 1] for t in texts]
        self.labels = labels

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


class Collate:
    def __init__(self, max_len):
        self.max_len = max_len

    def __call__(self, items):
        width = self.max_len
        x = torch.full((len(items), width), PAD, dtype=torch.long)
        for row, (ids, _) in enumerate(items):
            x[row, : len(ids)] = torch.tensor(ids)
        y = torch.tensor([label for _, label in items])
        return x, y


class Router(nn.Module):
    def __init__(self, vocab, queues, max_len, dim, heads, layers, ff, dropout):
        super().__init__()
        self.dim = dim
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, ff, dropout, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, queues))

    def forward(self, x):
        blank = x == PAD
        pos = torch.arange(x.shape[1], device=x.device)
        h = self.tok(x) * math.sqrt(self.dim) + self.pos(pos)
        h = self.enc(h, src_key_padding_mask=blank)
        keep = (~blank).unsqueeze(-1)
        pooled = (h * keep).sum(1) / keep.sum(1)
        return self.out(pooled)


def main(cfg):
    rng = random.Random(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    d, t = cfg["data"], cfg["train"]

    writer = TicketWriter(rng)
    labels = [rng.randrange(d["queues"]) for _ in range(d["tickets"])]
    texts = [writer.write(TOPICS[k]) for k in labels]
    vocab = build_vocab(texts, d["vocab"])
    loader = DataLoader(
        Tickets(texts, labels, vocab, d["max_len"]),
        batch_size=t["batch"],
        shuffle=True,
        drop_last=True,
        collate_fn=Collate(d["max_len"]),
        num_workers=d["workers"],
    )
    print(f"{len(texts)} tickets, {len(vocab)} words, {len(loader)} batches per epoch")

    model = Router(d["vocab"], d["queues"], d["max_len"], **cfg["model"])
    opt = torch.optim.AdamW(model.parameters(), lr=t["lr"], weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / t["warmup"]))
    loss_fn = nn.CrossEntropyLoss()

    step, mean_loss, mean_acc, tick = 0, None, None, time.time()
    for epoch in range(t["epochs"]):
        for x, y in loader:
            logits = model(x)
            loss = loss_fn(logits, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), t["clip"])
            opt.step()
            sched.step()
            step += 1
            acc = (logits.argmax(-1) == y).float().mean().item()
            mean_loss = loss.item() if mean_loss is None else 0.95 * mean_loss + 0.05 * loss.item()
            mean_acc = acc if mean_acc is None else 0.95 * mean_acc + 0.05 * acc
            if step % t["log_every"] == 0:
                took, tick = time.time() - tick, time.time()
                print(f"epoch {epoch} step {step} loss {mean_loss:.4f} acc {mean_acc:.3f} "
                      f"({1000 * took / t['log_every']:.0f} ms/step)", flush=True)


if __name__ == "__main__":
    main(CFG)
