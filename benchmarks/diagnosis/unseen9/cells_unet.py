import logging
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage import draw, filters
from torch import optim
from torch.utils.data import DataLoader, Dataset

dir_root = Path(tempfile.gettempdir()) / "cells_unet"
dir_img = dir_root / "imgs"
dir_mask = dir_root / "masks"
SIZE = 1024
CROP = 128


def make_data(n=10):
    if (dir_root / "done").exists():
        return
    dir_img.mkdir(parents=True, exist_ok=True)
    dir_mask.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    for k in range(n):
        mask = np.zeros((SIZE, SIZE), np.uint8)
        for _ in range(220):
            r, c = rng.integers(0, SIZE, 2)
            a, b = rng.integers(8, 30, 2)
            rr, cc = draw.ellipse(r, c, a, b, shape=mask.shape, rotation=rng.uniform(0, 3.1))
            mask[rr, cc] = 1
        soft = filters.gaussian(mask.astype(np.float32), 2.0)
        tint = rng.uniform(0.4, 0.9, 3)
        img = 0.15 + soft[..., None] * tint * 0.5 + rng.normal(0, 0.12, (SIZE, SIZE, 3))
        np.save(dir_img / f"{k:03d}.npy", (np.clip(img, 0, 1) * 255).astype(np.uint8))
        np.save(dir_mask / f"{k:03d}.npy", mask)
    (dir_root / "done").touch()


class CellDataset(Dataset):
    def __init__(self, images_dir, masks_dir, crops_per_image=32):
        self.ids = sorted(os.path.splitext(f)[0] for f in os.listdir(images_dir) if not f.startswith("."))
        if not self.ids:
            raise RuntimeError(f"No input file found in {images_dir}")
        logging.info(f"Creating dataset with {len(self.ids)} examples")
        self.images = [np.load(Path(images_dir) / f"{i}.npy") for i in self.ids]
        self.masks = [np.load(Path(masks_dir) / f"{i}.npy") for i in self.ids]
        self.crops_per_image = crops_per_image
        self.mean = np.array([0.31, 0.31, 0.31], np.float32)
        self.std = np.array([0.2, 0.2, 0.2], np.float32)

    def __len__(self):
        return len(self.ids) * self.crops_per_image

    @staticmethod
    def random_crop(img, mask):
        top = torch.randint(0, img.shape[0] - CROP + 1, (1,)).item()
        left = torch.randint(0, img.shape[1] - CROP + 1, (1,)).item()
        return img[top:top + CROP, left:left + CROP], mask[top:top + CROP, left:left + CROP]

    def augment(self, img, mask):
        img = img.astype(np.float32) / 255.0
        gamma = 0.7 + 0.6 * torch.rand(1).item()
        gain = 0.85 + 0.3 * torch.rand(1).item()
        img = np.clip(gain * np.power(img, gamma), 0.0, 1.0)
        img = (img - self.mean) / self.std
        k = torch.randint(0, 4, (1,)).item()
        img, mask = np.rot90(img, k), np.rot90(mask, k)
        if torch.rand(1).item() < 0.5:
            img, mask = img[:, ::-1], mask[:, ::-1]
        return img, mask

    def __getitem__(self, idx):
        which = idx % len(self.ids)
        img, mask = self.images[which], self.masks[which]
        assert img.shape[:2] == mask.shape, f"Image and mask {self.ids[which]} should be the same size"
        img, mask = self.augment(img, mask)
        img, mask = self.random_crop(img, mask)
        return {
            "image": torch.as_tensor(img.transpose((2, 0, 1)).copy()).float().contiguous(),
            "mask": torch.as_tensor(mask.copy()).long().contiguous(),
        }


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2, w=8):
        super().__init__()
        self.inc = DoubleConv(n_channels, w)
        self.down1 = DoubleConv(w, 2 * w)
        self.down2 = DoubleConv(2 * w, 4 * w)
        self.up1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.conv1 = DoubleConv(4 * w, 2 * w)
        self.up2 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.conv2 = DoubleConv(2 * w, w)
        self.outc = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        y = self.conv1(torch.cat([x2, self.up1(x3)], dim=1))
        y = self.conv2(torch.cat([x1, self.up2(y)], dim=1))
        return self.outc(y)


def dice_loss(probs, target, epsilon=1e-6):
    inter = 2 * (probs * target).sum(dim=(1, 2))
    sets_sum = probs.sum(dim=(1, 2)) + target.sum(dim=(1, 2))
    return 1 - ((inter + epsilon) / (sets_sum + epsilon)).mean()


def train_model(model, device, epochs=400, batch_size=8, learning_rate=1e-3, gradient_clipping=1.0):
    dataset = CellDataset(dir_img, dir_mask)
    loader_args = dict(batch_size=batch_size, num_workers=2, persistent_workers=True, pin_memory=False)
    train_loader = DataLoader(dataset, shuffle=True, drop_last=True, **loader_args)
    optimizer = optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 100, 0.5)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        for batch in train_loader:
            images, true_masks = batch["image"], batch["mask"]
            assert images.shape[1] == 3, "check that the images are loaded correctly"
            images = images.to(device=device, dtype=torch.float32)
            true_masks = true_masks.to(device=device, dtype=torch.long)
            masks_pred = model(images)
            loss = criterion(masks_pred, true_masks)
            loss += dice_loss(F.softmax(masks_pred, dim=1)[:, 1], true_masks.float())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
            optimizer.step()
            global_step += 1
            epoch_loss += loss.item()
            if global_step % 20 == 0:
                logging.info(f"step {global_step} loss (batch) {loss.item():.4f}")
        scheduler.step()
        logging.info(f"Epoch {epoch}/{epochs} loss {epoch_loss / len(train_loader):.4f}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    torch.manual_seed(0)
    np.random.seed(0)
    make_data()
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = UNet().to(dev)
    logging.info(f"Network: {sum(p.numel() for p in net.parameters())} parameters on {dev}")
    train_model(net, dev)
