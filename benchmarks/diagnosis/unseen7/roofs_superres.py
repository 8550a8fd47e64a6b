import os
import glob
import time
import random
import shutil
import tempfile

import numpy as np
from PIL import Image
import skimage.data as skd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

# ---- settings -------------------------------------------------------------
seed = 1234
scale = 2
hr_size = 48
num_tiles = 1500
batch_size = 8
num_epochs = 120
learning_rate = 2e-4
features = 40
num_resblocks = 6
tile_folder = os.path.join(tempfile.gettempdir(), "roofs_superres")

random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
torch.set_num_threads(1)


# ---- write the tiles (only the first time) ---------------------------------
def write_tiles():
    part = tile_folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    rng = np.random.RandomState(seed)
    sources = [skd.rocket(), skd.coffee(), skd.astronaut(), skd.chelsea()]
    for n in range(num_tiles):
        img = sources[n % 4]
        top = rng.randint(0, img.shape[0] - hr_size)
        left = rng.randint(0, img.shape[1] - hr_size)
        tile = img[top:top + hr_size, left:left + hr_size]
        Image.fromarray(tile).save(os.path.join(part, "tile_%05d.png" % n))
    os.rename(part, tile_folder)


if not os.path.isdir(tile_folder):
    print("writing tiles to", tile_folder)
    write_tiles()


# ---- load every tile -------------------------------------------------------
class TileDataset(Dataset):
    def __init__(self, folder):
        self.hr = []
        self.lr = []
        for path in sorted(glob.glob(os.path.join(folder, "*.png"))):
            img = Image.open(path).convert("RGB")
            small = img.resize((hr_size // scale, hr_size // scale), Image.BICUBIC)
            self.hr.append(torch.tensor(np.array(img)).permute(2, 0, 1).float() / 255)
            self.lr.append(torch.tensor(np.array(small)).permute(2, 0, 1).float() / 255)

    def __len__(self):
        return len(self.hr)

    def __getitem__(self, idx):
        lr = self.lr[idx]
        hr = self.hr[idx]
        if random.random() < 0.5:
            lr = torch.flip(lr, dims=[2])
            hr = torch.flip(hr, dims=[2])
        if random.random() < 0.5:
            lr = torch.flip(lr, dims=[1])
            hr = torch.flip(hr, dims=[1])
        return lr, hr


dataset = TileDataset(tile_folder)
dataloader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=0)
print("loaded", len(dataset), "tiles,", len(dataloader), "batches")


# ---- model (EDSR style, features at the high resolution) --------------------
class ResBlock(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.a = nn.Conv2d(f, f, 3, padding=1)
        self.b = nn.Conv2d(f, f, 3, padding=1)

    def forward(self, x):
        return x + 0.1 * self.b(F.relu(self.a(x)))


class SRNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, features, 3, padding=1)
        self.blocks = nn.ModuleList([ResBlock(features) for _ in range(num_resblocks)])
        self.up = nn.Conv2d(features, features * scale * scale, 3, padding=1)
        self.tail = nn.Sequential(
            nn.Conv2d(features, features, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(features, 3, 3, padding=1),
        )

    def forward(self, x):
        base = F.interpolate(x, scale_factor=scale, mode="bicubic", align_corners=False)
        h = self.head(x)
        for block in self.blocks:
            h = block(h)
        h = F.pixel_shuffle(self.up(h), scale)
        return base + self.tail(h)


model = SRNet()
optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
loss_history = []

# ---- training ---------------------------------------------------------------
t0 = time.time()
for epoch in range(num_epochs):
    for i, (lr, hr) in enumerate(dataloader):
        optimizer.zero_grad()
        sr = model(lr)
        loss = F.l1_loss(sr, hr)
        loss.backward()
        optimizer.step()

        loss_history.append(loss.item())
        with torch.no_grad():
            psnr = -10 * torch.log10(F.mse_loss(sr, hr))
        print("epoch", epoch, "batch", i, "loss", loss.item(), "psnr", psnr.item(),
              "time", round(time.time() - t0, 1), flush=True)
    print("=== epoch", epoch, "mean loss", sum(loss_history[-len(dataloader):]) / len(dataloader))
