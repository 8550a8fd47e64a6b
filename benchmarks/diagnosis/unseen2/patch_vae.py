# VAE on 28x28 patches of photographs, KL weight warmed up in small stages (one stage = 50 steps)
import numpy as np
import torch
import torch._dynamo
import torch.nn as nn
import torch.nn.functional as F
from skimage import color, data

torch._dynamo.config.recompile_limit = 256

STAGE = 50          # steps per stage
WARMUP = 400        # stages until the KL counts in full
BATCH = 256
STEPS = 12_000


def load(n=30_000, s=28, seed=0):
    rng = np.random.default_rng(seed)
    imgs = [color.rgb2gray(data.astronaut()), color.rgb2gray(data.coffee()), color.rgb2gray(data.chelsea())]
    out = np.empty((n, s * s), dtype=np.float32)
    for i in range(n):
        im = imgs[i % 3]
        r = rng.integers(0, im.shape[0] - s)
        c = rng.integers(0, im.shape[1] - s)
        out[i] = im[r:r + s, c:c + s].ravel()
    return torch.from_numpy(out)


class VAE(nn.Module):
    def __init__(self, d=784, h=512, z=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 256), nn.ReLU(), nn.Linear(256, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, d))
        self.stage = 0

    def set_stage(self, k):
        self.stage = k

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        rec = F.binary_cross_entropy_with_logits(self.dec(z), x, reduction="none").sum(1).mean()
        kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1).mean()
        beta = (self.stage + 1) / WARMUP
        return rec + beta * kl, rec, kl


def main():
    torch.manual_seed(0)
    x = load()
    vae = VAE()
    compiled = torch.compile(vae, dynamic=False)
    opt = torch.optim.Adam(vae.parameters(), lr=1e-3, fused=True)

    for step in range(STEPS):
        if step % STAGE == 0:
            vae.set_stage(step // STAGE)
        xb = x[torch.randint(len(x), (BATCH,))]
        loss, rec, kl = compiled(xb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.2f} rec {rec.item():.2f} kl {kl.item():.2f}", flush=True)


if __name__ == "__main__":
    main()
