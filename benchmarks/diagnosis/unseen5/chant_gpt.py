"""A tiny decoder-only transformer that learns to continue plainchant-like melodies."""
import copy
import csv
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

context = 160
batch_size = 16
n_layer, n_head, n_embd = 4, 4, 160
max_lr, min_lr, warmup = 1e-3, 1e-4, 100
epochs, windows_per_epoch = 30, 3200
MODES = {0: [0, 2, 3, 5, 7, 9, 10], 1: [0, 1, 3, 5, 7, 8, 10], 2: [0, 2, 4, 5, 7, 9, 11], 3: [0, 2, 4, 5, 7, 9, 10]}
VOCAB = 4 + 4 * 32


def compose(n_phrases, seed):
    rng = np.random.default_rng(seed)
    tokens = []
    for _ in range(n_phrases):
        mode = int(rng.integers(4))
        degree, motif = 7, rng.integers(-2, 3, size=5)
        tokens.append(mode)
        for k in range(int(rng.integers(20, 48))):
            move = motif[k % 5] if rng.random() < 0.8 else rng.integers(-2, 3)
            degree = int(np.clip(degree + move, 0, 17))
            pitch = MODES[mode][degree % 7] + 12 * (degree // 7)
            length = int(k % 5 == 4) * 2 + int(rng.random() < 0.1)
            tokens.append(4 + min(pitch, 31) * 4 + length)
    return np.array(tokens, dtype=np.int64)


class Windows(Dataset):
    def __init__(self, stream, count):
        self.stream, self.count = stream, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        start = int(torch.randint(len(self.stream) - context - 1, (1,)))
        piece = torch.from_numpy(self.stream[start:start + context + 1])
        return piece[:-1], piece[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, n_head, c // n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class ChantGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, n_embd), nn.Embedding(context, n_embd)
        self.blocks = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, VOCAB, bias=False)
        self.head.weight = self.tok.weight
        self.apply(lambda m: nn.init.normal_(m.weight, std=0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, idx):
        x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def rate(step, total):
    if step < warmup:
        return max_lr * (step + 1) / warmup
    return min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * step / total))


if __name__ == "__main__":
    torch.manual_seed(1337)
    stream = compose(6000, seed=1337)
    cut = int(0.95 * len(stream))
    train = DataLoader(Windows(stream[:cut], windows_per_epoch), batch_size=batch_size, num_workers=1,
                       persistent_workers=True, prefetch_factor=4)
    valid = list(DataLoader(Windows(stream[cut:], 96), batch_size=32))
    model = ChantGPT()
    average = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=max_lr, betas=(0.9, 0.95), weight_decay=0.1)
    step, total = 0, epochs * len(train)
    with tempfile.TemporaryDirectory(prefix="chant_") as folder, open(os.path.join(folder, "log.csv"), "w") as f:
        table = csv.writer(f)
        for epoch in range(epochs):
            mark = time.time()
            for x, y in train:
                for group in opt.param_groups:
                    group["lr"] = rate(step, total)
                loss = loss_of(model, x, y)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)
                table.writerow([step, f"{loss.item():.4f}", f"{norm.item():.3f}"])
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.4f} {time.time() - mark:.1f}s", flush=True)
                step += 1
            with torch.no_grad():
                v = sum(loss_of(average, x, y).item() for x, y in valid) / len(valid)
            torch.save(average.state_dict(), os.path.join(folder, "average.pt"))
            f.flush()
            print(f"epoch {epoch} valid {v:.4f}", flush=True)
