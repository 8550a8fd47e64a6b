"""Attention-based multiple instance learning on slides (after Ilse et al. 2018).

A slide is a bag of tissue patches with one label for the whole bag.
"""
import numpy as np
import torch
from torch import nn

N_SLIDES = 400
PATCHES_PER_SLIDE = 16
PATCH = 32
SLIDES_PER_BATCH = 2


def make_slides(seed=7):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N_SLIDES)
    x = rng.integers(120, 240, (N_SLIDES, PATCHES_PER_SLIDE, 3, PATCH, PATCH), dtype=np.uint8)
    for s in np.flatnonzero(y):
        # positive slides have a few patches with dark nuclei
        for p in rng.choice(PATCHES_PER_SLIDE, 3, replace=False):
            for _ in range(4):
                r, c = rng.integers(0, PATCH - 6, 2)
                x[s, p, :2, r:r + 6, c:c + 6] //= 3
    return torch.from_numpy(x), torch.from_numpy(y).float()


class PatchEncoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.GroupNorm(8, 64), nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, dim))

    def forward(self, x):
        return self.net(x)


class AttentionMIL(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder = PatchEncoder(dim)
        self.attention = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 1))
        self.classifier = nn.Linear(dim, 1)

    def forward(self, bags):
        # bags: (slides, patches, 3, h, w)
        b, n = bags.shape[:2]
        patches = bags.flatten(0, 1)
        h = torch.stack([self.encoder(p.unsqueeze(0)).squeeze(0) for p in patches])
        h = h.view(b, n, -1)
        a = torch.softmax(self.attention(h), dim=1)
        return self.classifier((a * h).sum(1)).squeeze(1)


class Trainer:
    def __init__(self, model, x, y, lr=3e-4):
        self.model, self.x, self.y = model, x, y
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-5)
        self.criterion = nn.BCEWithLogitsLoss()
        self.global_step = 0

    def train_step(self, idx):
        bags = self.x[idx].float().sub_(128).div_(64)
        loss = self.criterion(self.model(bags), self.y[idx])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss

    def fit(self, epochs):
        self.model.train()
        for epoch in range(epochs):
            for idx in torch.randperm(len(self.x)).split(SLIDES_PER_BATCH):
                loss = self.train_step(idx)
                self.global_step += 1
                if self.global_step % 40 == 0:
                    print(f"[{epoch}] step {self.global_step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    slides, labels = make_slides()
    Trainer(AttentionMIL(), slides, labels).fit(epochs=100)
