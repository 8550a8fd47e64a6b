"""Next-patch pretraining on variable star light curves.

Survey photometry (synthetic here) is cut into patches of 16 epochs; a causal
transformer predicts a quantised flux token for each next patch.
"""
import collections
import dataclasses
import json
import os
import queue
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Config:
    n_stars: int = 6000
    patches: int = 64
    patch: int = 16
    vocab: int = 128
    dim: int = 384
    heads: int = 6
    depth: int = 3
    batch: int = 12
    lr: float = 3e-4
    steps: int = 3000
    ema: float = 0.999
    ema_every: int = 10
    eval_every: int = 200
    save_every: int = 250
    log_every: int = 25
    root: str = os.path.join(tempfile.gettempdir(), "lightcurve_gpt")


class Survey:
    """Memory-mapped flux table, one row per star."""

    def __init__(self, cfg: Config):
        self.cfg = cfg
        path = os.path.join(cfg.root, "flux.npy")
        if not os.path.exists(path):
            os.makedirs(cfg.root, exist_ok=True)
            np.save(path, self._simulate())
        self.flux = np.load(path, mmap_mode="r")
        self.n_val = 128

    def _simulate(self, seed=9):
        cfg, rng = self.cfg, np.random.default_rng(seed)
        t = np.arange((cfg.patches + 1) * cfg.patch, dtype=np.float32)
        period = rng.uniform(20, 300, (cfg.n_stars, 1)).astype(np.float32)
        phase = rng.uniform(0, 6.28, (cfg.n_stars, 1)).astype(np.float32)
        amp = rng.gamma(2, 0.4, (cfg.n_stars, 1)).astype(np.float32)
        w = 6.2832 * t / period + phase
        f = amp * (np.sin(w) + 0.4 * np.sin(2 * w + 1))
        return (f + 0.2 * rng.standard_normal(f.shape, dtype=np.float32)).astype(np.float32)

    def batch(self, rows):
        cfg = self.cfg
        x = torch.from_numpy(self.flux[np.sort(rows)]).view(len(rows), cfg.patches + 1, cfg.patch)
        target = x[:, 1:].mean(2).mul(0.3).sigmoid().mul(cfg.vocab).long().clamp(0, cfg.vocab - 1)
        return x[:, :-1].contiguous(), target


class Feeder(threading.Thread):
    """Draws batches in the background, two ahead."""

    def __init__(self, survey, cfg, seed=0):
        super().__init__(daemon=True)
        self.survey, self.cfg = survey, cfg
        self.rng = np.random.default_rng(seed)
        self.out = queue.Queue(maxsize=2)

    def run(self):
        lo, hi = self.survey.n_val, self.cfg.n_stars
        while True:
            self.out.put(self.survey.batch(self.rng.integers(lo, hi, self.cfg.batch)))

    def __iter__(self):
        while True:
            yield self.out.get()


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.ln1, self.ln2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.proj = nn.Linear(cfg.dim, cfg.dim)
        self.up, self.down = nn.Linear(cfg.dim, 4 * cfg.dim), nn.Linear(4 * cfg.dim, cfg.dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.ln2(x))))


class LightCurveGPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(cfg.patch, cfg.dim)
        self.pos = nn.Parameter(0.02 * torch.randn(cfg.patches, cfg.dim))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.depth))
        self.ln = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, x):
        h = self.inp(x) + self.pos
        for blk in self.blocks:
            h = blk(h)
        return self.head(self.ln(h))


class ActivationWatch:
    """Mean absolute output of each block, for the training report."""

    def __init__(self, model):
        self.values = collections.defaultdict(list)
        for i, blk in enumerate(model.blocks):
            blk.register_forward_hook(self._hook(f"block{i}"))

    def _hook(self, name):
        def f(module, args, out):
            self.values[name].append(out.detach()[:, -1].abs().mean().item())
        return f

    def drain(self):
        r = {k: round(sum(v) / len(v), 3) for k, v in self.values.items()}
        self.values.clear()
        return r


class Pretrainer:
    def __init__(self, cfg: Config):
        torch.manual_seed(0)
        self.cfg, self.survey = cfg, Survey(cfg)
        self.model = LightCurveGPT(cfg)
        self.watch = ActivationWatch(self.model)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, fused=True)
        self.shadow = [p.detach().clone() for p in self.model.parameters()]
        self.report = open(os.path.join(cfg.root, "report.jsonl"), "w")

    def loss(self, batch):
        x, y = batch
        return F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())

    @torch.no_grad()
    def evaluate(self):
        rows = np.arange(self.survey.n_val).reshape(-1, 32)
        return float(np.mean([self.loss(self.survey.batch(r)).item() for r in rows]))

    def fit(self):
        cfg = self.cfg
        feeder = Feeder(self.survey, cfg)
        feeder.start()
        t0 = time.time()
        for step, batch in enumerate(feeder, 1):
            loss = self.loss(batch)
            self.opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            if step % cfg.ema_every == 0:
                with torch.no_grad():
                    torch._foreach_lerp_(self.shadow, list(self.model.parameters()), 1 - cfg.ema ** cfg.ema_every)
            self.report.write(json.dumps({"step": step, "loss": loss.item(), "norm": norm.item()}) + "\n")
            self.report.flush()
            if step % cfg.log_every == 0:
                print(f"step {step} loss {loss.item():.3f} {self.watch.drain()} "
                      f"{step / (time.time() - t0):.2f} it/s", flush=True)
            if step % cfg.eval_every == 0:
                print(f"  val {self.evaluate():.3f}", flush=True)
            if step % cfg.save_every == 0:
                torch.save({"model": self.model.state_dict(), "ema": self.shadow, "step": step},
                           os.path.join(cfg.root, "last.pt"))
            if step >= cfg.steps:
                break


if __name__ == "__main__":
    Pretrainer(Config()).fit()
