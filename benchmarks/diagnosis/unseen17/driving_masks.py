"""Segmentation of driving scenes (road, car, pedestrian, building, sky) with a small U-Net."""
import random
import tempfile
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassJaccardIndex
from torchmetrics.segmentation import DiceScore

ROOT = Path(tempfile.gettempdir()) / "driving_masks"
CLASSES = ["building", "sky", "road", "car", "pedestrian"]
COLOURS = [(120, 100, 90), (150, 190, 230), (80, 80, 85), (170, 40, 40), (60, 90, 50)]
WIDTH, HEIGHT = 256, 128


def draw_scene(rng):
    frame, mask = Image.new("RGB", (WIDTH, HEIGHT), COLOURS[0]), Image.new("L", (WIDTH, HEIGHT), 0)
    canvas, labels = ImageDraw.Draw(frame), ImageDraw.Draw(mask)

    def paint(kind, method, shape):
        shade = tuple(c + rng.randint(-20, 20) for c in COLOURS[kind])
        getattr(canvas, method)(shape, fill=shade)
        getattr(labels, method)(shape, fill=kind)

    horizon = rng.randint(45, 65)
    skyline = [(0, 0)] + [(x, rng.randint(10, horizon)) for x in range(0, WIDTH + 1, 32)] + [(WIDTH, 0)]
    paint(1, "polygon", skyline)
    middle = rng.randint(90, 166)
    paint(2, "polygon", [(middle - 10, horizon), (middle + 10, horizon), (WIDTH, HEIGHT), (0, HEIGHT)])
    for _ in range(rng.randint(1, 5)):
        y = rng.randint(horizon, HEIGHT - 10)
        w = 8 + (y - horizon) // 2
        x = rng.randint(0, WIDTH)
        paint(3, "rectangle", [x - w, y - w // 2, x + w, y + w // 2])
    for _ in range(rng.randint(0, 5)):
        y, x = rng.randint(horizon, HEIGHT - 20), rng.randint(0, WIDTH)
        h = 6 + (y - horizon) // 3
        paint(4, "ellipse", [x - h // 3, y - h, x + h // 3, y + h])
    noisy = np.asarray(frame, np.float32) + np.random.default_rng(rng.randint(0, 1 << 30)).normal(0, 12, (HEIGHT, WIDTH, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), mask


def prepare(count=900, seed=4):
    rng = random.Random(seed)
    for folder in ("frames", "masks"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        frame, mask = draw_scene(rng)
        frame.save(ROOT / "frames" / f"{i:05d}.png")
        mask.save(ROOT / "masks" / f"{i:05d}.png")
    (ROOT / "complete").touch()


class SceneDataset(Dataset):
    def __init__(self, frames, augment=False):
        self.frames = frames
        self.augment = augment

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        path = self.frames[i]
        frame = np.array(Image.open(path).convert("RGB"))
        mask = np.array(Image.open(ROOT / "masks" / path.name))
        x = torch.from_numpy(frame).permute(2, 0, 1).float() / 255
        y = torch.from_numpy(mask).long()
        if self.augment:
            if torch.rand(1) < 0.5:
                x, y = x.flip(-1), y.flip(-1)
            x = (x * (0.8 + 0.4 * torch.rand(3, 1, 1))).clamp(0, 1)
        return x, y


class SceneData(pl.LightningDataModule):
    def __init__(self, batch_size=4):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        if not (ROOT / "complete").exists():
            prepare()

    def setup(self, stage=None):
        frames = sorted((ROOT / "frames").glob("*.png"))
        self.train_set = SceneDataset(frames[:760], augment=True)
        self.val_set = SceneDataset(frames[760:830])
        self.test_set = SceneDataset(frames[830:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(),
        nn.Conv2d(c_out, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        self.down1, self.down2 = double_conv(3, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2, self.up1 = double_conv(6 * width, 2 * width), double_conv(3 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2)], dim=1))
        a = self.up1(torch.cat([a, F.interpolate(b, scale_factor=2)], dim=1))
        return self.out(a)


class SceneSegmenter(pl.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet(len(CLASSES)).to(memory_format=torch.channels_last)
        self.train_iou = MulticlassJaccardIndex(len(CLASSES))
        self.val_iou = MulticlassJaccardIndex(len(CLASSES))
        self.test_dice = DiceScore(len(CLASSES), input_format="index")

    def forward(self, x):
        return self.net(x.contiguous(memory_format=torch.channels_last))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        for k, name in enumerate(CLASSES):
            self.log(f"share/{name}", (y == k).float().mean().item())
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_iou", self.train_iou(logits.argmax(1), y), prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_iou(logits.argmax(1), y)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_iou", self.val_iou, prog_bar=True)

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.test_dice(self(x).argmax(1), y)
        self.log("test_dice", self.test_dice)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class SavePreview(Callback):
    """Keeps a predicted mask of the first validation scene after every epoch."""

    def on_validation_epoch_end(self, trainer, module):
        x, _ = trainer.datamodule.val_set[0]
        prediction = module(x[None]).argmax(1)[0].byte().numpy() * 50
        Image.fromarray(prediction).save(ROOT / f"preview_{trainer.current_epoch:03d}.png")


if __name__ == "__main__":
    pl.seed_everything(21)
    data = SceneData()
    model = SceneSegmenter()
    trainer = pl.Trainer(
        max_epochs=20,
        accelerator="cpu",
        precision="bf16-mixed",
        log_every_n_steps=5,
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[ModelCheckpoint(monitor="val_iou", mode="max"), SavePreview()],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
