"""
A small GPT on folk tunes written as event tokens (pitch, duration, bar). One process, one file:
$ python tunegpt.py
"""
import inspect
import math
import os
import pickle
import tempfile
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
out_dir = os.path.join(tempfile.gettempdir(), "tunegpt")
eval_interval = 500
eval_iters = 5
log_interval = 10
gradient_accumulation_steps = 1
batch_size = 16
block_size = 128
n_layer = 3
n_head = 4
n_embd = 192
bias = False
learning_rate = 1e-3
max_iters = 20000
weight_decay = 1e-1
grad_clip = 1.0
warmup_iters = 50
lr_decay_iters = 20000
min_lr = 1e-4
device = "cpu"
# -----------------------------------------------------------------------------


def prepare():
    os.makedirs(out_dir, exist_ok=True)
    if os.path.exists(os.path.join(out_dir, "meta.pkl")):
        return
    rng = np.random.default_rng(1337)
    scale = np.array([0, 2, 4, 5, 7, 9, 11, 12])
    toks = []
    for _ in range(9000):
        key, pos = int(rng.integers(12)), int(rng.integers(8))
        toks.append(0)
        motif = rng.integers(-2, 3, 6)
        for bar in range(16):
            for m in (motif if bar % 4 != 3 else motif[::-1]):
                pos = int(np.clip(pos + m, 0, 7))
                toks += [10 + key + int(scale[pos]), 40 + int(rng.integers(3))]
            toks.append(1)
    ids = np.array(toks, dtype=np.uint16)
    cut = int(0.95 * len(ids))
    ids[:cut].tofile(os.path.join(out_dir, "train.bin"))
    ids[cut:].tofile(os.path.join(out_dir, "val.bin"))
    with open(os.path.join(out_dir, "meta.pkl"), "wb") as f:
        pickle.dump({"vocab_size": 64}, f)


def get_batch(split):
    # We recreate np.memmap every batch to avoid a memory leak
    data = np.memmap(os.path.join(out_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i:i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1:i + 1 + block_size]).astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        k = k.view(B, T, n_head, C // n_head).transpose(1, 2)
        q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
        v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=bias)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(n_embd, bias=bias)
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.relu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd, bias=bias)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self):
        params = [p for p in self.parameters() if p.requires_grad]
        groups = [{"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
                  {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
        use_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.99), **(dict(fused=True) if use_fused else {}))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    out = {s: float(np.mean([model(*get_batch(s))[1].item() for _ in range(eval_iters)])) for s in ("train", "val")}
    model.train()
    return out


def main():
    torch.manual_seed(1337)
    prepare()
    ctx = nullcontext() if device == "cpu" else torch.amp.autocast(device_type=device, dtype=torch.bfloat16)
    with open(os.path.join(out_dir, "meta.pkl"), "rb") as f:
        model = GPT(pickle.load(f)["vocab_size"])
    optimizer = model.configure_optimizers()
    X, Y = get_batch("train")  # fetch the very first batch
    t0, it = time.time(), 0
    while it <= max_iters:
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        if it % eval_interval == 0 and it > 0:
            losses = estimate_loss(model)
            print(f"step {it}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it},
                       os.path.join(out_dir, "ckpt.pt"))
        for _ in range(gradient_accumulation_steps):
            with ctx:
                _, loss = model(X, Y)
            X, Y = get_batch("train")
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dt, t0 = time.time() - t0, time.time()
        lossf = loss.item() * gradient_accumulation_steps
        if it % log_interval == 0:
            print(f"iter {it}: loss {lossf:.4f}, time {dt * 1000:.2f}ms", flush=True)
        it += 1


if __name__ == "__main__":
    main()
