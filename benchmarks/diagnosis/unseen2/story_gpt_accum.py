# Small GPT on generated stories. Micro-batches of 4 windows, 4 of them to an optimizer step.
import math
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MICRO_BATCH = 4
ACCUMULATE = 4
CONTEXT = 128
LR = 6e-4
MAX_UPDATES = 3000
WARMUP = 100


def write_stories(n=20000):
    rnd = random.Random(5)
    who = ["the fox", "a sailor", "my aunt", "the baker", "an old king", "the twins"]
    did = ["lost", "found", "painted", "sold", "remembered", "buried"]
    what = ["a silver key", "the blue boat", "a letter", "seven apples", "the tower clock", "a map"]
    when = ["at dawn", "in the rain", "on the last day of May", "before supper", "again"]
    return "".join(f"{rnd.choice(who)} {rnd.choice(did)} {rnd.choice(what)} {rnd.choice(when)}. " for _ in range(n))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, dim=320, layers=2, heads=5):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(CONTEXT, dim)
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("steps", torch.arange(CONTEXT), persistent=False)

    def forward(self, idx):
        return self.head(self.ln(self.layers(self.tok(idx) + self.pos(self.steps))))


def lr_factor(update):
    if update < WARMUP:
        return (update + 1) / WARMUP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (update - WARMUP) / (MAX_UPDATES - WARMUP)))


def save(path, model, optimizer, update):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "update": update}, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    torch.manual_seed(0)
    text = write_stories()
    chars = sorted(set(text))
    lookup = {c: i for i, c in enumerate(chars)}
    windows = torch.tensor([lookup[c] for c in text]).unfold(0, CONTEXT + 1, 1)

    model = GPT(len(chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)

    micro, start = 0, time.time()
    for update in range(1, MAX_UPDATES + 1):
        for _ in range(ACCUMULATE):
            w = windows[torch.randint(len(windows), (MICRO_BATCH,))]
            logits = model(w[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), w[:, 1:].flatten())
            (loss / ACCUMULATE).backward()
            micro += 1
            if micro % 20 == 0:
                print(f"update {update} micro {micro} loss {loss.item():.4f} {time.time() - start:.1f}s", flush=True)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        if update % 250 == 0:
            save("story_gpt.pt", model, optimizer, update)


if __name__ == "__main__":
    main()
