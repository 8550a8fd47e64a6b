"""Byte-level language model with selective state space blocks."""
import math
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab_size: int = 64
    d_model: int = 64
    n_layers: int = 2
    d_state: int = 16
    d_conv: int = 4
    expand: int = 2
    dt_rank: int = 4
    block_size: int = 48
    batch_size: int = 4
    lr: float = 2e-3
    weight_decay: float = 0.05
    warmup: int = 50
    max_seconds: float = 80.0
    log_interval: int = 10
    seed: int = 1337


def build_corpus(cfg):
    root = os.path.join(tempfile.gettempdir(), "mamba_bytes")
    path = os.path.join(root, "train.bin")
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        rng = np.random.default_rng(cfg.seed)
        words = [rng.integers(1, cfg.vocab_size, rng.integers(2, 9)) for _ in range(400)]
        p = 1.0 / np.arange(1, 401)
        ids = rng.choice(400, size=200_000, p=p / p.sum())
        stream = np.concatenate([np.append(words[i], 0) for i in ids]).astype(np.uint8)
        stream.tofile(path)
    return np.fromfile(path, dtype=np.uint8)


class BatchStream:
    def __init__(self, data, cfg):
        self.data = torch.from_numpy(data.astype(np.int64))
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(cfg.seed)
        self.window = torch.arange(cfg.block_size + 1)

    def next(self):
        start = torch.randint(len(self.data) - self.cfg.block_size - 1, (self.cfg.batch_size, 1), generator=self.gen)
        chunk = self.data[start + self.window]
        return chunk[:, :-1], chunk[:, 1:]


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class SelectiveSSM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        d_in = cfg.expand * cfg.d_model
        self.in_proj = nn.Linear(cfg.d_model, 2 * d_in, bias=False)
        self.conv1d = nn.Conv1d(d_in, d_in, cfg.d_conv, groups=d_in, padding=cfg.d_conv - 1)
        self.x_proj = nn.Linear(d_in, cfg.dt_rank + 2 * cfg.d_state, bias=False)
        self.dt_proj = nn.Linear(cfg.dt_rank, d_in)
        A = torch.arange(1, cfg.d_state + 1, dtype=torch.float32).repeat(d_in, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(d_in))
        self.out_proj = nn.Linear(d_in, cfg.d_model, bias=False)
        nn.init.constant_(self.dt_proj.bias, math.log(math.expm1(0.01)))

    def scan(self, dA, dBx):
        h = torch.zeros_like(dBx[:, 0])
        states = []
        for t in range(dA.shape[1]):
            h = torch.addcmul(dBx[:, t], dA[:, t], h)
            states.append(h)
        return torch.stack(states, dim=1)

    def forward(self, x):
        L = x.shape[1]
        u, gate = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv1d(u.transpose(1, 2))[..., :L].transpose(1, 2)
        u = F.silu(u)
        dt, B, C = self.x_proj(u).split([self.cfg.dt_rank, self.cfg.d_state, self.cfg.d_state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        A = -torch.exp(self.A_log)
        dA = torch.exp(dt.unsqueeze(-1) * A)
        dBx = (dt * u).unsqueeze(-1) * B.unsqueeze(2)
        h = self.scan(dA, dBx)
        y = (h @ C.unsqueeze(-1)).squeeze(-1)
        y = y + u * self.D
        return self.out_proj(y * F.silu(gate))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = RMSNorm(cfg.d_model)
        self.mixer = SelectiveSSM(cfg)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class MambaLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg.vocab_size, cfg.d_model)
        self.layers = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layers)])
        self.norm_f = RMSNorm(cfg.d_model)
        self.lm_head = nn.Linear(cfg.d_model, cfg.vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.lm_head.weight = self.embedding.weight

    def forward(self, idx, targets):
        x = self.embedding(idx)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def configure_optimizer(model, cfg):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=cfg.lr, betas=(0.9, 0.95), fused=True)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    stream = BatchStream(build_corpus(cfg), cfg)
    model = MambaLM(cfg)
    print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e3:.1f}K")
    opt = configure_optimizer(model, cfg)
    it, t0 = 0, time.time()
    while time.time() - t0 < cfg.max_seconds:
        lr = cfg.lr * min(1.0, (it + 1) / cfg.warmup)
        for g in opt.param_groups:
            g["lr"] = lr
        x, y = stream.next()
        loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        it += 1
        if it % cfg.log_interval == 0:
            print(f"iter {it}: loss {loss.item():.4f}, {it / (time.time() - t0):.2f} it/s", flush=True)
    print(f"done: {it} steps in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
