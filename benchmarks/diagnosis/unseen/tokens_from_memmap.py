"""
A small character-level GPT in the manner of nanoGPT, on generated arithmetic text.
$ python tokens_from_memmap.py /some/folder
"""
import math
import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

batch_size = 12
block_size = 64
n_layer = 3

eval_interval = 500
eval_iters = 5
learning_rate = 1e-3
max_iters = 50000
warmup_iters = 100


@dataclass
class GPTConfig:
    vocab_size: int = 16
    n_head: int = 4
    n_embd: int = 128


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.n_embd
        self.n_head = config.n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn = nn.Linear(d, 3 * d)
        self.c_proj = nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (z.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def prepare(data_dir):
    chars = "0123456789+=\n"
    stoi = {c: i for i, c in enumerate(chars)}
    rng = np.random.default_rng(1337)
    a, b = rng.integers(0, 1000, (2, 100_000)).tolist()
    text = "".join(f"{x}+{y}={x + y}\n" for x, y in zip(a, b))
    ids = np.array([stoi[c] for c in text], dtype=np.uint16)
    n = int(0.95 * len(ids))
    ids[:n].tofile(os.path.join(data_dir, "train.bin"))
    ids[n:].tofile(os.path.join(data_dir, "val.bin"))


def get_batch(data_dir, split):
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


@torch.no_grad()
def estimate_loss(model, data_dir):
    model.eval()
    mean = torch.stack([model(*get_batch(data_dir, "val")) for _ in range(eval_iters)]).mean()
    model.train()
    return mean.item()


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    return learning_rate * (0.55 + 0.45 * math.cos(math.pi * it / max_iters))


if __name__ == "__main__":
    data_dir = sys.argv[1]
    torch.manual_seed(1337)
    prepare(data_dir)
    model = GPT(GPTConfig())
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
    t0 = time.time()
    for it in range(max_iters):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        X, Y = get_batch(data_dir, "train")
        loss = model(X, Y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if it % 50 == 0:
            print(f"iter {it}: loss {loss.item():.4f}, time {(time.time() - t0) * 1000:.0f}ms")
        if it % eval_interval == eval_interval - 1:
            print(f"step {it + 1}: val loss {estimate_loss(model, data_dir):.4f}")
