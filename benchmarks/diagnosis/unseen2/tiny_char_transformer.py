"""A deep and narrow character transformer on made-up addresses."""
import argparse
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CONTEXT = 32


def corpus(n=40000):
    rnd = random.Random(0)
    streets = ["Oak", "Mill", "Station", "Church", "Harbour", "Castle", "Garden", "King"]
    kinds = ["Street", "Road", "Lane", "Avenue", "Square"]
    towns = ["Ashford", "Bexley", "Corby", "Dunwich", "Elmstead", "Fenton"]
    lines = [f"{rnd.randint(1, 199)} {rnd.choice(streets)} {rnd.choice(kinds)}, {rnd.randint(10000, 99999)} {rnd.choice(towns)}\n"
             for _ in range(n)]
    return "".join(lines)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharModel(nn.Module):
    def __init__(self, vocab, dim=32, depth=20, heads=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(CONTEXT, dim))
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, idx):
        return self.head(self.norm(self.blocks(self.tok(idx) + self.pos)))


class MyAdamW(torch.optim.Optimizer):
    """AdamW with the clipping of the gradient norm built in."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01, max_norm=1.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_norm=max_norm))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            total = 0.0
            for p in group["params"]:
                total += p.grad.pow(2).sum().item()
            clip = min(1.0, group["max_norm"] / (math.sqrt(total) + 1e-6))
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["t"] += 1
                g = p.grad * clip
                m, v = state["m"], state["v"]
                m.mul_(b1).add_(g, alpha=1 - b1)
                v.mul_(b2).add_(g * g, alpha=1 - b2)
                m_hat = m / (1 - b1 ** state["t"])
                v_hat = v / (1 - b2 ** state["t"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * m_hat / (v_hat.sqrt() + group["eps"]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=50000)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()

    torch.manual_seed(0)
    text = corpus()
    chars = sorted(set(text))
    code = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([code[c] for c in text])
    windows = ids.unfold(0, CONTEXT + 1, 1)
    model = CharModel(len(chars))
    opt = MyAdamW(model.parameters(), lr=args.lr)
    t0 = time.time()
    for step in range(1, args.steps + 1):
        w = windows[torch.randint(len(windows), (args.batch,))]
        logits = model(w[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), w[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"{step} loss {loss.item():.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
