# Denoising autoencoder on patches of photographs
import os
import time

import numpy as np
import torch
import torch.nn as nn
from skimage import data

PATCH = 16
BATCH = 64
CKPT = "patch_denoiser_last.pt"
SAVE_EVERY = 3


def get_patches(n=40000, path="denoiser_patches.npy"):
    if not os.path.exists(path):
        rng = np.random.default_rng(0)
        photos = [data.astronaut(), data.coffee(), data.chelsea()]
        out = np.empty((n, PATCH, PATCH, 3), np.uint8)
        for i in range(n):
            img = photos[i % len(photos)]
            y = rng.integers(img.shape[0] - PATCH)
            x = rng.integers(img.shape[1] - PATCH)
            out[i] = img[y:y + PATCH, x:x + PATCH]
        np.save(path, out)
    return torch.from_numpy(np.load(path)).flatten(1)


class Denoiser(nn.Module):
    def __init__(self, dim=PATCH * PATCH * 3, hidden=1536):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.decoder = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, model, patches, lr=3e-4, sigma=0.15):
        self.model = model
        self.patches = patches
        self.sigma = sigma
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
        self.step = 0

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, CKPT + ".tmp")
        os.replace(CKPT + ".tmp", CKPT)

    def train_step(self):
        idx = torch.randint(len(self.patches), (BATCH,))
        clean = self.patches[idx].float().div_(255)
        noisy = clean + self.sigma * torch.randn_like(clean)
        loss = nn.functional.mse_loss(self.model(noisy), clean)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss

    def fit(self, steps):
        start = time.time()
        while self.step < steps:
            loss = self.train_step()
            if self.step % SAVE_EVERY == 0:
                self.save()
            if self.step % 40 == 0:
                rate = self.step * BATCH / (time.time() - start)
                print(f"[{self.step:5d}/{steps}] mse {loss.item():.5f}  {rate:.0f} patches/s", flush=True)


torch.manual_seed(1)
trainer = Trainer(Denoiser(), get_patches())
trainer.fit(30000)
