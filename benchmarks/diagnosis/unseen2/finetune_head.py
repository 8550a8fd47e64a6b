# %% [markdown]
# Linear probe on our own pictures: ResNet-18 features stay as they are, we only train a new classifier on top.

# %%
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from skimage import data

torch.manual_seed(0)
NUM_CLASSES = 9
SIZE, CROP = 72, 64
batch_size = 8

# %% tiles of the picture, the class is the cell of a 3x3 grid
photo = data.astronaut()
rng = np.random.default_rng(0)
n = 2400
labels = rng.integers(0, NUM_CLASSES, n)
tiles = np.empty((n, SIZE, SIZE, 3), np.uint8)
for i, c in enumerate(labels):
    y0 = (c // 3) * 180 + rng.integers(0, 512 - 360 - SIZE + 1)
    x0 = (c % 3) * 180 + rng.integers(0, 512 - 360 - SIZE + 1)
    tiles[i] = photo[y0:y0 + SIZE, x0:x0 + SIZE]
images = torch.from_numpy(tiles).permute(0, 3, 1, 2).contiguous()
labels = torch.from_numpy(labels)
mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def augment(x):
    """random crop, flip and brightness on the whole batch"""
    dy, dx = torch.randint(0, SIZE - CROP + 1, (2,)).tolist()
    x = x[:, :, dy:dy + CROP, dx:dx + CROP].float().div_(255)
    flip = torch.rand(len(x)) < 0.5
    x[flip] = x[flip].flip(3)
    x = x * torch.empty(len(x), 1, 1, 1).uniform_(0.7, 1.3)
    return (x - mean) / std


# %% backbone + head
backbone = torchvision.models.resnet18(weights=None)
backbone.fc = nn.Identity()
if os.path.exists("resnet18_pretrained.pt"):
    backbone.load_state_dict(torch.load("resnet18_pretrained.pt"))
backbone.eval()      # keep the BN statistics

head = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, NUM_CLASSES))
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)   # only the head is trained

# %%
step = 0
for epoch in range(60):
    head.train()
    for idx in torch.randperm(n).split(batch_size):
        x, y = augment(images[idx]), labels[idx]
        features = backbone(x)
        loss = F.cross_entropy(head(features), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 25 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
