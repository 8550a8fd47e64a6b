"""Character-level transformer on nested bracket strings."""
import argparse
import random

import torch
from torch import nn
from torch.nn import functional as F

D_MODEL = 192
LAYERS = 4
CONTEXT = 32

PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
VOCAB = sorted(set("".join(k + v for k, v in PAIRS.items()) + "abcdefgh;"))


def bracket_text(n, seed=4):
    rng, out, stack = random.Random(seed), [], []
    while len(out) < n:
        u = rng.random()
        if u < 0.35 and len(stack) < 6:
            c = rng.choice("([{<")
            stack.append(PAIRS[c])
        elif u < 0.7 and stack:
            c = stack.pop()
        else:
            c = rng.choice("abcdefgh") if stack else ";"
        out.append(c)
    index = {c: i for i, c in enumerate(VOCAB)}
    return torch.tensor([index[c] for c in out])


class Layer(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(len(VOCAB), D_MODEL)
        self.pos = nn.Parameter(0.02 * torch.randn(CONTEXT, D_MODEL))
        self.layers = nn.Sequential(*[Layer(D_MODEL) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D_MODEL)
        self.out = nn.Linear(D_MODEL, len(VOCAB), bias=False)

    def forward(self, idx):
        return self.out(self.norm(self.layers(self.tok(idx) + self.pos[:idx.shape[1]])))


def ensure_sane(model, step, limit=1e3):
    """Stops the run with a message at the first gradient that is not finite, explodes or has collapsed to one value."""
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        g = p.grad
        if torch.isnan(g).any() or torch.isinf(g).any():
            raise FloatingPointError(f"step {step}: {name} has a gradient that is not finite")
        if g.norm().item() > limit or p.detach().norm().item() > limit:
            raise FloatingPointError(f"step {step}: {name} explodes")
        middle = g.abs().median().item()
        counts = torch.histc(g, bins=64)
        if g.numel() > 64 and counts.max().item() == g.numel() and middle > 0:
            raise FloatingPointError(f"step {step}: {name} has collapsed, {counts.tolist()}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=100_000)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--lr", type=float, default=6e-4)
    a = p.parse_args()
    torch.manual_seed(9)
    text = bracket_text(200_000)
    offsets = torch.arange(CONTEXT + 1)
    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), fused=True)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    for step in range(a.steps):
        chunk = text[torch.randint(len(text) - CONTEXT - 1, (a.batch, 1)) + offsets]
        logits = model(chunk[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        ensure_sane(model, step)
        opt.step()
        if step % 100 == 0:
            print(f"{step:6d}  {loss.item():.4f} nats/char", flush=True)


if __name__ == "__main__":
    main()
