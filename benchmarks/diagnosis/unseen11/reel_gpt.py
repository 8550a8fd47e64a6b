"""
Minimal GPT over fiddle tunes in ABC-like notation. Character level.

$ python reel_gpt.py                # trains ~4000 iterations
"""
import argparse
import math
import os
import random
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

out_dir = os.path.join(tempfile.gettempdir(), 'reel_gpt')

# -----------------------------------------------------------------------------
# corpus: tunes made by a small grammar (AABB form, motifs that come back)


def make_tune(rnd, number):
    key = rnd.choice(['D', 'G', 'A', 'Em', 'Bm'])
    scale = 'DEFGABcdefga'
    motifs = []
    for _ in range(3):
        pos = rnd.randrange(2, len(scale) - 2)
        bar = []
        for _ in range(8):
            pos = min(max(pos + rnd.choice([-2, -1, -1, 1, 1, 2]), 0), len(scale) - 1)
            bar.append(scale[pos])
        motifs.append(''.join(bar[:4]) + ' ' + ''.join(bar[4:]))
    a = '|'.join(motifs[i] for i in (0, 1, 0, 2))
    b = '|'.join(motifs[i] for i in (2, 2, 1, 0))
    return f"X:{number}\nM:4/4\nK:{key}\n|:{a}:|\n|:{b}:|\n\n"


def get_corpus():
    os.makedirs(out_dir, exist_ok=True)
    path = os.path.join(out_dir, 'reels.abc')
    if not os.path.exists(path):
        rnd = random.Random(1337)
        with open(path, 'w') as f:
            for n in range(1, 8001):
                f.write(make_tune(rnd, n))
    with open(path) as f:
        return f.read()


# -----------------------------------------------------------------------------


@dataclass
class GPTConfig:
    block_size: int = 64
    vocab_size: int = 64
    n_layer: int = 6
    n_head: int = 4
    n_embd: int = 96
    dropout: float = 0.0
    bias: bool = False


class CausalSelfAttention(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head = config.n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Block(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.proj(F.gelu(self.fc(self.ln_2(x))))
        return x


class GPT(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight  # weight tying
        self.apply(self._init_weights)
        print("number of parameters: %.2fM" % (sum(p.numel() for p in self.parameters()) / 1e6))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        T = idx.size(1)
        x = self.wte(idx) + self.wpe(torch.arange(T, device=idx.device))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Throughput:
    """Keeps track of achieved GFLOP/s against what the machine could do."""

    def __init__(self, peak_gflops=150.0):
        self.peak = peak_gflops
        self.flops = 0
        self.t0 = time.time()

    def add(self, flops):
        self.flops += flops

    def report(self):
        now = time.time()
        gflops = self.flops / (now - self.t0) / 1e9
        self.flops, self.t0 = 0, now
        return gflops, 100 * gflops / self.peak


# -----------------------------------------------------------------------------

parser = argparse.ArgumentParser()
parser.add_argument('--batch_size', type=int, default=4)
parser.add_argument('--max_iters', type=int, default=4000)
parser.add_argument('--learning_rate', type=float, default=1e-3)
parser.add_argument('--warmup_iters', type=int, default=100)
parser.add_argument('--log_interval', type=int, default=50)
parser.add_argument('--eval_interval', type=int, default=1000)
args = parser.parse_args()

torch.manual_seed(1337)
text = get_corpus()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.95 * len(data))
train_data, val_data = data[:n], data[n:]
print(f"corpus has {len(data):,} characters, {len(chars)} distinct")

config = GPTConfig(vocab_size=len(chars))
model = GPT(config)
ckpt_path = os.path.join(out_dir, 'ckpt.pt')


def get_batch(split):
    d = train_data if split == 'train' else val_data
    ix = torch.randint(len(d) - config.block_size, (args.batch_size,))
    x = torch.stack([d[i:i + config.block_size] for i in ix])
    y = torch.stack([d[i + 1:i + 1 + config.block_size] for i in ix])
    return x, y


def get_lr(it):
    if it < args.warmup_iters:
        return args.learning_rate * (it + 1) / args.warmup_iters
    ratio = (it - args.warmup_iters) / (args.max_iters - args.warmup_iters)
    return args.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * ratio)))


@torch.no_grad()
def estimate_loss(iters=20):
    model.eval()
    out = sum(model(*get_batch('val'))[1].item() for _ in range(iters)) / iters
    model.train()
    return out


optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate,
                              betas=(0.9, 0.95), weight_decay=0.1, fused=True)
speed = Throughput()
for it in range(args.max_iters):
    for g in optimizer.param_groups:
        g['lr'] = get_lr(it)
    X, Y = get_batch('train')
    with FlopCounterMode(display=False) as counter:
        logits, loss = model(X, Y)
        loss.backward()
    speed.add(counter.get_total_flops())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % args.log_interval == 0:
        gf, mfu = speed.report()
        print(f"iter {it}: loss {loss.item():.4f}, {gf:.1f} GFLOP/s ({mfu:.1f}%)", flush=True)
    if it > 0 and it % args.eval_interval == 0:
        print(f"iter {it}: val loss {estimate_loss():.4f}")
        torch.save({'model': model.state_dict(), 'config': config, 'iter': it}, ckpt_path)
torch.save({'model': model.state_dict(), 'config': config, 'iter': args.max_iters}, ckpt_path)
