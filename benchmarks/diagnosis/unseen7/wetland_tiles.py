"""Open-water / wetland segmentation on 4-band scenes, small U-Net, PyTorch Lightning.

Scenes are kept in one HDF5 file (one scene = one 768 x 768 raster with blue, green, red, nir).
Training draws random 64 x 64 tiles from random scenes.
"""
import os
import tempfile
import time
import warnings

import h5py
import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", ".*does not have many workers.*")

SEED = 408
N_SCENES = 14
SIDE = 768
TILE = 64
TILES_PER_EPOCH = 1600
BATCH = 8
EPOCHS = 400
STORE = os.path.join(tempfile.gettempdir(), "wetland_tiles", "scenes.h5")


def make_scene(rng):
    def field(sigma):
        coarse = gaussian_filter(rng.standard_normal((SIDE // 4, SIDE // 4)), sigma)
        coarse = np.kron(coarse / coarse.std(), np.ones((4, 4)))
        return coarse.astype(np.float32)

    relief, moisture = field(12), field(5)
    wet = relief + 0.5 * moisture
    label = np.zeros((SIDE, SIDE), np.uint8)
    label[wet < -0.6] = 1        # wetland
    label[wet < -1.3] = 2        # open water
    base = np.array([[900, 1100, 1200, 2800],
                     [800, 1000, 950, 2100],
                     [700, 750, 500, 350]], np.float32)
    bands = base[label].transpose(2, 0, 1)
    bands = bands * (1 + 0.12 * field(2)) + rng.normal(0, 60, bands.shape)
    return bands.clip(0, 10000).astype(np.uint16), label


def build_store(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    rng = np.random.default_rng(SEED)
    tmp = path + ".part"
    with h5py.File(tmp, "w") as f:
        img = f.create_dataset("bands", (N_SCENES, 4, SIDE, SIDE), "uint16",
                               chunks=(1, 4, SIDE, SIDE), compression="gzip", compression_opts=2)
        lab = f.create_dataset("label", (N_SCENES, SIDE, SIDE), "uint8",
                               chunks=(1, SIDE, SIDE), compression="gzip", compression_opts=2)
        for i in range(N_SCENES):
            img[i], lab[i] = make_scene(rng)
    os.replace(tmp, path)


class TileDataset(Dataset):
    def __init__(self, path, scenes, length):
        self.path, self.scenes, self.length = path, scenes, length
        self.bands = self.label = None

    def open(self):
        f = h5py.File(self.path, "r")
        self.bands, self.label = f["bands"], f["label"]

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.bands is None:
            self.open()
        s = self.scenes[int(torch.randint(len(self.scenes), ()))]
        r, c = (int(v) for v in torch.randint(SIDE - TILE, (2,)))
        x = self.bands[s, :, r:r + TILE, c:c + TILE].astype(np.float32) / 3000.0
        y = self.label[s, r:r + TILE, c:c + TILE].astype(np.int64)
        return torch.from_numpy(x), torch.from_numpy(y)


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, c=12, classes=3):
        super().__init__()
        self.d1, self.d2, self.d3 = conv_block(4, c), conv_block(c, 2 * c), conv_block(2 * c, 4 * c)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.u2, self.u1 = conv_block(4 * c, 2 * c), conv_block(2 * c, c)
        self.out = nn.Conv2d(c, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        z = self.d3(F.max_pool2d(b, 2))
        z = self.u2(torch.cat([self.up2(z), b], 1))
        z = self.u1(torch.cat([self.up1(z), a], 1))
        return self.out(z)


class WetlandModule(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = UNet()
        self.register_buffer("class_weight", torch.tensor([0.6, 1.2, 1.5]))
        self.t0 = time.time()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y, weight=self.class_weight)
        if self.global_step % 100 == 0:
            print(f"epoch {self.current_epoch} step {self.global_step} loss {loss.item():.4f} "
                  f"{time.time() - self.t0:.0f}s", flush=True)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return {"optimizer": opt,
                "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, step_size=50, gamma=0.5)}


def main():
    pl.seed_everything(SEED, workers=True)
    if not os.path.exists(STORE):
        build_store(STORE)
    train = TileDataset(STORE, list(range(N_SCENES)), TILES_PER_EPOCH)
    loader = DataLoader(train, batch_size=BATCH, num_workers=2, persistent_workers=True)
    trainer = pl.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(WetlandModule(), loader)


if __name__ == "__main__":
    main()
