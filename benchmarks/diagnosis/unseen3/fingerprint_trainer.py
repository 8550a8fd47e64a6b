"""Solubility regression from hashed molecular fingerprints. Residual MLP with an EMA copy."""
import copy
import os
import sys
import tempfile
import time

import torch
from torch import nn


class ResMLP(nn.Module):
    def __init__(self, n_bits, width=512, depth=3):
        super().__init__()
        self.inp = nn.Linear(n_bits, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = h + b(h)
        return self.out(h).squeeze(-1)


def fake_molecules(n, n_bits):
    g = torch.Generator().manual_seed(4)
    bits = (torch.rand(n, n_bits, generator=g) < 0.04).to(torch.uint8)
    w = torch.randn(n_bits, generator=g) * 0.3
    target = bits.float() @ w + 0.1 * torch.randn(n, generator=g)
    return bits, target


class Trainer:
    def __init__(self, workdir, n_molecules=20_000, n_bits=2048, batch_size=32, save_every=3, lr=3e-4):
        self.workdir = workdir
        os.makedirs(workdir, exist_ok=True)
        torch.manual_seed(0)
        self.bits, self.target = fake_molecules(n_molecules, n_bits)
        self.batch_size, self.save_every = batch_size, save_every
        self.model = ResMLP(n_bits)
        self.ema = copy.deepcopy(self.model).requires_grad_(False)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.step, self.epoch, self.history = 0, 0, []

    def batches(self):
        order = torch.randperm(len(self.bits))
        self.order = order
        for s in range(0, len(order) - self.batch_size + 1, self.batch_size):
            idx = order[s:s + self.batch_size]
            yield self.bits[idx].float(), self.target[idx]

    @torch.no_grad()
    def update_ema(self, decay=0.99):
        torch._foreach_lerp_(list(self.ema.parameters()), list(self.model.parameters()), 1 - decay)

    def save(self):
        state = dict(
            model=self.model.state_dict(), ema=self.ema.state_dict(), opt=self.opt.state_dict(),
            bits=self.bits, target=self.target, order=self.order, rng=torch.get_rng_state(),
            step=self.step, epoch=self.epoch, history=self.history)
        tmp = os.path.join(self.workdir, "last.ckpt.tmp")
        torch.save(state, tmp)
        os.replace(tmp, os.path.join(self.workdir, "last.ckpt"))

    def train_step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.update_ema()
        return loss.item()

    def fit(self, epochs):
        began = time.perf_counter()
        for self.epoch in range(epochs):
            for x, y in self.batches():
                loss = self.train_step(x, y)
                self.step += 1
                self.history.append(loss)
                if self.step % self.save_every == 0:
                    self.save()
                if self.step % 20 == 0:
                    speed = self.step * self.batch_size / (time.perf_counter() - began)
                    recent = self.history[-20:]
                    print(f"{self.epoch:3d} {self.step:6d} mse {sum(recent) / len(recent):.4f} {speed:.0f} mol/s", flush=True)


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.gettempdir(), "fingerprints")
    Trainer(where).fit(epochs=200)
