"""
This training script is a cut-down fork of nanoGPT's train.py, for linearised glycan strings.
"""
import math
import os
import pickle
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
out_dir = os.path.join(tempfile.gettempdir(), 'glycan_gpt')
eval_interval = 400
log_interval = 10
eval_iters = 8
always_save_checkpoint = False
gradient_accumulation_steps = 1
batch_size = 16
block_size = 96
# model
n_layer = 3
n_head = 4
n_embd = 128
dropout = 0.0
bias = False
learning_rate = 1e-3
max_iters = 60000
weight_decay = 1e-1
beta1, beta2 = 0.9, 0.99
grad_clip = 1.0
# lr decay
decay_lr = True
warmup_iters = 100
lr_decay_iters = 60000
min_lr = 1e-4
# system
device = 'cuda' if torch.cuda.is_available() else 'cpu'
dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float32'
# -----------------------------------------------------------------------------


def prepare():
    rng = np.random.default_rng(1337)
    residues = ['Gal', 'Glc', 'Man', 'Fuc', 'Xyl', 'GlcNAc', 'GalNAc', 'Neu5Ac', 'GlcA', 'IdoA']
    after = rng.dirichlet(np.full(len(residues), 0.3), size=len(residues))
    bonds = rng.choice(['(a1-2)', '(a1-3)', '(b1-4)', '(b1-6)', '(a2-3)', '(a2-6)'], size=(10, 10))
    chunks = []
    for _ in range(30000):
        r, s = rng.integers(10), []
        for _ in range(rng.integers(3, 9)):
            n = rng.choice(10, p=after[r])
            s.append(residues[r] + bonds[r, n])
            if rng.random() < 0.15:
                s.append('[' + residues[rng.integers(10)] + '(a1-3)]')
            r = n
        chunks.append(''.join(s) + residues[r])
    text = '\n'.join(chunks)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = np.array([stoi[c] for c in text], dtype=np.uint16)
    n = int(0.9 * len(ids))
    ids[:n].tofile(os.path.join(out_dir, 'train.bin'))
    ids[n:].tofile(os.path.join(out_dir, 'val.bin'))
    with open(os.path.join(out_dir, 'meta.pkl'), 'wb') as f:
        pickle.dump({'vocab_size': len(chars), 'stoi': stoi, 'itos': chars}, f)


def get_batch(split):
    # We recreate np.memmap every batch to avoid a memory leak
    data = np.memmap(os.path.join(out_dir, f'{split}.bin'), dtype=np.uint16, mode='r')
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i:i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1:i + 1 + block_size]).astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)


def sinusoids(length, channels):
    """fixed positions, they did better than learned ones on short strings"""
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, channels, 2) / channels)
    return 0.02 * np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.register_buffer('wpe', torch.from_numpy(sinusoids(config.block_size, config.n_embd)))
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        for n, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02 / math.sqrt(2 * config.n_layer) if n.endswith('c_proj.weight') else 0.02
                nn.init.normal_(p, mean=0.0, std=std)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe[:idx.size(1)]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * min(ratio, 1.0))) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss(model, ctx):
    model.eval()
    out = {}
    for split in ['train', 'val']:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with ctx:
                losses[k] = model(X, Y)[1].item()
        out[split] = losses.mean()
    model.train()
    return out


def main():
    os.makedirs(out_dir, exist_ok=True)
    torch.manual_seed(1337)
    if not os.path.exists(os.path.join(out_dir, 'meta.pkl')):
        prepare()
    with open(os.path.join(out_dir, 'meta.pkl'), 'rb') as f:
        vocab_size = pickle.load(f)['vocab_size']
    device_type = 'cuda' if 'cuda' in device else 'cpu'
    ptdtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
    ctx = nullcontext() if ptdtype == torch.float32 else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
    model = GPT(GPTConfig(block_size, vocab_size, n_layer, n_head, n_embd, dropout, bias)).double().to(device)
    print('number of parameters: %.2fM' % (sum(p.numel() for p in model.parameters()) / 1e6))
    optimizer = torch.optim.AdamW([
        {'params': [p for p in model.parameters() if p.dim() >= 2], 'weight_decay': weight_decay},
        {'params': [p for p in model.parameters() if p.dim() < 2], 'weight_decay': 0.0},
    ], lr=learning_rate, betas=(beta1, beta2))
    scaler = torch.amp.GradScaler(device_type, enabled=(device_type == 'cuda' and dtype == 'float16'))
    best_val_loss, t0 = 1e9, time.time()
    X, Y = get_batch('train')
    for iter_num in range(max_iters):
        lr = get_lr(iter_num) if decay_lr else learning_rate
        for group in optimizer.param_groups:
            group['lr'] = lr
        if iter_num and iter_num % eval_interval == 0:
            losses = estimate_loss(model, ctx)
            print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
            if losses['val'] < best_val_loss or always_save_checkpoint:
                best_val_loss = losses['val']
                torch.save({'model': model.state_dict(), 'iter_num': iter_num}, os.path.join(out_dir, 'ckpt.pt'))
        for micro_step in range(gradient_accumulation_steps):
            with ctx:
                logits, loss = model(X, Y)
                loss = loss / gradient_accumulation_steps
            X, Y = get_batch('train')
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        dt, t0 = time.time() - t0, time.time()
        if iter_num % log_interval == 0:
            print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}, time {dt * 1000:.2f}ms", flush=True)


if __name__ == '__main__':
    main()
