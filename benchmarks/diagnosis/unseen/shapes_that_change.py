"""Bearing fault diagnosis from vibration recordings of whatever duration the operator chose.

Recordings are grouped by duration so that a batch holds similar ones.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch._dynamo
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
CHANNELS = 56
SEED = 5

# every recording duration gets its own specialised graph
torch._dynamo.config.recompile_limit = 100000
torch._dynamo.config.accumulated_recompile_limit = 100000


@dataclass
class Config:
    n_recordings: int = 6000
    shortest: int = 150
    longest: int = 1050
    kinds: int = 4
    lr: float = 2e-3
    blocks: int = 3
    epochs: int = 200


class Recordings:
    def __init__(self, cfg):
        rng = np.random.default_rng(SEED)
        self.rng = rng
        lengths = np.sort(rng.integers(cfg.shortest, cfg.longest, cfg.n_recordings))
        self.items = []
        for n in lengths:
            kind = int(rng.integers(cfg.kinds))
            t = np.arange(n, dtype=np.float32)
            wave = np.sin(t * (0.05 + 0.04 * kind) + rng.uniform(0, 6)) * (1 + 0.3 * np.sin(t / 40))
            self.items.append((torch.from_numpy((wave + 0.5 * rng.standard_normal(n, dtype=np.float32)).astype(np.float32)), kind))

    def __iter__(self):
        groups = np.arange(len(self.items)).reshape(-1, BATCH)
        for group in self.rng.permutation(groups):
            yield self.collate([self.items[i] for i in group])

    @staticmethod
    def collate(rows):
        longest = max(len(w) for w, _ in rows)
        width = longest
        x = torch.zeros(len(rows), 1, width)
        mask = torch.zeros(len(rows), 1, width)
        for i, (wave, _) in enumerate(rows):
            x[i, 0, : len(wave)] = wave
            mask[i, 0, : len(wave)] = 1
        return x, mask, torch.tensor([k for _, k in rows])


class Residual(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.a = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(c, c, 1)
        self.norm = nn.GroupNorm(4, c)

    def forward(self, x, mask):
        return x + self.b(F.gelu(self.norm(self.a(x)))) * mask


class Diagnosis(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Conv1d(1, CHANNELS, 7, padding=3, stride=1)
        self.blocks = nn.ModuleList(Residual(CHANNELS, 2**i) for i in range(cfg.blocks))
        self.head = nn.Linear(2 * CHANNELS, cfg.kinds)

    def forward(self, x, mask):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h, mask)
        mean = (h * mask).sum(-1) / mask.sum(-1)
        peak = h.masked_fill(mask == 0, -1e4).amax(-1)
        return self.head(torch.cat([mean, peak], 1))


def main(cfg):
    torch.manual_seed(SEED)
    recordings = Recordings(cfg)
    model = Diagnosis(cfg)
    # the plant's machines have no C++ compiler, so no inductor here
    forward = torch.compile(model, dynamic=False, backend="eager")
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    step, smooth = 0, None
    for epoch in range(cfg.epochs):
        for x, mask, kind in recordings:
            opt.zero_grad()
            loss = F.cross_entropy(forward(x, mask), kind)
            loss.backward()
            opt.step()
            step += 1
            if step % 25 == 0:
                smooth = loss.item() if smooth is None else 0.8 * smooth + 0.2 * loss.item()
                print(f"epoch {epoch} step {step} loss~{smooth:.4f}", flush=True)


if __name__ == "__main__":
    main(Config())
