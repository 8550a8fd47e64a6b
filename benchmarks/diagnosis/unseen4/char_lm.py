"""
Minimal character-level language model.
All text lives in memory as one long tensor, batches are random windows of it.
"""
import math
import random
import time

import torch
import torch.nn as nn
from torch.nn import functional as F

# ----------------------------------------------------------------------------
batch_size = 24
block_size = 128
n_layer, n_head, n_embd = 4, 4, 192
dropout = 0.0
learning_rate = 6e-4
max_iters = 3000
warmup = 100
eval_interval = 250
eval_iters = 10
log_interval = 20
seed = 1337
# ----------------------------------------------------------------------------


def make_corpus(n_sentences=20000):
    """A little grammar that produces endless nonsense prose."""
    rng = random.Random(seed)
    nouns = "river stone lamp garden letter wolf sailor window bridge clock".split()
    verbs = "finds carries breaks paints follows forgets opens hears".split()
    adjs = "old quiet red broken distant golden narrow".split()
    out = []
    for _ in range(n_sentences):
        a, b = rng.sample(nouns, 2)
        s = f"the {rng.choice(adjs)} {a} {rng.choice(verbs)} the {b}"
        if rng.random() < 0.4:
            s += f" and the {b} {rng.choice(verbs)} a {rng.choice(adjs)} {rng.choice(nouns)}"
        out.append(s.capitalize() + ".")
    return " ".join(out)


text = make_corpus()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
split = int(0.95 * len(data))
train_data, val_data = data[:split], data[split:]


def get_batch(source):
    ix = torch.randint(len(source) - block_size - 1, (batch_size, 1))
    window = source[ix + torch.arange(block_size + 1)]
    return window[:, :-1], window[:, 1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)
        self.fc1, self.fc2 = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


class CharLM(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos.weight[: idx.size(1)]
        logits = self.head(self.ln(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    loss = sum(model(*get_batch(val_data)).item() for _ in range(eval_iters)) / eval_iters
    model.train()
    return loss


def lr_at(it):
    if it < warmup:
        return learning_rate * (it + 1) / warmup
    return learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * it / max_iters)))


if __name__ == "__main__":
    torch.manual_seed(seed)
    model = CharLM(len(chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.99))
    print(f"{len(data)} characters, {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters")
    t0 = time.time()
    for it in range(max_iters):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(it)
        loss = model(*get_batch(train_data))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if it % log_interval == 0:
            print(f"iter {it} loss {loss.item():.4f} {time.time() - t0:.1f}s", flush=True)
        if it % eval_interval == 0 and it > 0:
            print(f"iter {it} val loss {estimate_loss(model):.4f}", flush=True)
