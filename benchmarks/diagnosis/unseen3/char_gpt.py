"""Byte-level GPT on the Python standard library's source text.

AdamW (fused), warm-up + cosine, gradient accumulation, clipping, EMA weights.
"""
import argparse
import math
import pathlib
import sysconfig
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=256, ctx=64, d=384, depth=3, heads=6):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.tok.weight
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx):
        x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def load_bytes(limit=2_000_000):
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    buf = bytearray()
    for f in sorted(root.glob("*.py")):
        buf += f.read_bytes()
        if len(buf) > limit:
            break
    return torch.frombuffer(buf[:limit], dtype=torch.uint8).long()


def batch(data, n, ctx):
    start = torch.randint(0, len(data) - ctx - 1, (n, 1))
    chunk = data[start + torch.arange(ctx + 1)]
    return chunk[:, :-1], chunk[:, 1:]


def lr_factor(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--ctx", type=int, default=64)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--iters", type=int, default=4000)
    ap.add_argument("--ema", type=float, default=0.995)
    args = ap.parse_args()

    torch.manual_seed(1337)
    data = load_bytes()
    model = GPT(ctx=args.ctx)
    params = list(model.parameters())
    print(f"{len(data):,} bytes, {sum(p.numel() for p in params) / 1e6:.1f}M parameters")
    decay = [p for p in params if p.ndim > 1]
    rest = [p for p in params if p.ndim <= 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=True,
    )
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_factor(s, 50, args.iters))
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(args.ema)
    )

    tic = time.time()
    for it in range(args.iters):
        total = torch.zeros(())
        for _ in range(args.accum):
            x, y = batch(data, args.batch, args.ctx)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(x)
            loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten()) / args.accum
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        sched.step()
        if it % 4 == 3:
            averaged.update_parameters(model)
        if it % 2 == 1:
            now = time.time()
            rate = 2 * args.accum * args.batch / (now - tic)
            print(f"iter {it + 1} loss {total.item():.3f} gnorm {norm.item():.2f} lr {sched.get_last_lr()[0]:.2e} {rate:.1f} sequences/s", flush=True)
            tic = now


if __name__ == "__main__":
    main()
