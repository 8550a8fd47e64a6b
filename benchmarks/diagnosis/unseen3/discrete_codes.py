# Gumbel-softmax discrete autoencoder on small crops of the bundled photos.
import math
import time

import numpy as np
import skimage.data
import torch
import torch._dynamo
import torch.nn as nn
import torch.nn.functional as F

cfg = {
    "crop": 16,
    "n_crops": 8000,
    "codes": 64,
    "slots": 8,
    "hidden": 256,
    "batch": 128,
    "lr": 1e-3,
    "steps": 30000,
    "tau_start": 2.0,
    "tau_end": 0.3,
    "tau_every": 20,
    "log_every": 40,
    "seed": 2,
}

torch._dynamo.config.recompile_limit = 10_000
torch._dynamo.config.accumulated_recompile_limit = 100_000


def crops(cfg):
    rng = np.random.default_rng(cfg["seed"])
    photos = [skimage.data.camera(), skimage.data.astronaut()[..., 1], skimage.data.coffee()[..., 1], skimage.data.chelsea()[..., 1]]
    c = cfg["crop"]
    out = np.empty((cfg["n_crops"], c * c), np.float32)
    for k in range(len(out)):
        p = photos[k % len(photos)]
        i, j = rng.integers(0, p.shape[0] - c), rng.integers(0, p.shape[1] - c)
        out[k] = p[i : i + c, j : j + c].ravel() / 127.5 - 1
    return torch.from_numpy(out)


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.net(x)


class CodeAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d, self.k, self.s = cfg["hidden"], cfg["codes"], cfg["slots"]
        n = cfg["crop"] ** 2
        self.enc = nn.Sequential(nn.Linear(n, d), Residual(d), Residual(d), nn.Linear(d, self.k * self.s))
        self.dec = nn.Sequential(nn.Linear(self.k * self.s, d), Residual(d), Residual(d), nn.Linear(d, n))
        self.tau_start, self.tau_end = cfg["tau_start"], cfg["tau_end"]
        self.n_stages = cfg["steps"] // cfg["tau_every"]
        self.stage = 0

    def tau(self):
        return self.tau_start * (self.tau_end / self.tau_start) ** (self.stage / self.n_stages)

    def forward(self, x):
        logits = self.enc(x).view(-1, self.s, self.k)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        soft = F.softmax((logits + noise) / self.tau(), -1)
        rec = self.dec(soft.flatten(1))
        q = F.softmax(logits, -1)
        kl = (q * (q.clamp_min(1e-8).log() + math.log(self.k))).sum((1, 2)).mean()
        usage = q.mean((0, 1))
        perplexity = torch.exp(-(usage * usage.clamp_min(1e-8).log()).sum())
        return F.mse_loss(rec, x), kl, perplexity


torch.manual_seed(cfg["seed"])
data = crops(cfg)
print("crops", tuple(data.shape))
model = CodeAE(cfg)
# inductor needs a C++ toolchain that the lab machines lack
compiled = torch.compile(model, backend="aot_eager")
opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])

tic = time.time()
for step in range(cfg["steps"]):
    if step % cfg["tau_every"] == 0:
        model.stage = step // cfg["tau_every"]
    x = data[torch.randint(0, len(data), (cfg["batch"],))]
    mse, kl, perplexity = compiled(x)
    loss = mse + 1e-4 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (step + 1) % cfg["log_every"] == 0:
        toc = time.time()
        print(
            f"{step + 1:6d} mse {mse.item():.4f} kl {kl.item():.2f} ppl {perplexity.item():.1f} "
            f"tau {float(model.tau()):.3f} | {cfg['log_every'] * cfg['batch'] / (toc - tic):.0f} crops/s",
            flush=True,
        )
        tic = toc
