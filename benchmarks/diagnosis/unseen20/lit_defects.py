"""Surface-defect classification with a small ResNet (PyTorch Lightning).

Six defect types on rolled metal, one folder of JPEG files per class, as in the
NEU surface-defect database; here the textures are synthesised.
"""
import argparse
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

CLASSES = ["crazing", "inclusion", "patches", "pitted", "rolled_in", "scratches"]


def draw_defect(kind, rng, size=200):
    """One grey-level texture with the given defect on it."""
    yy, xx = np.mgrid[0:size, 0:size] / size
    img = 140 + 12 * rng.standard_normal((size, size)) + 25 * (xx - 0.5) * rng.normal()
    if kind == "crazing":
        for _ in range(6):
            f, p, a = rng.uniform(15, 40), rng.uniform(0, 6.28), rng.uniform(0, 3.14)
            img -= 12 * (np.sin(f * (np.cos(a) * xx + np.sin(a) * yy) + p) > 0.9)
    elif kind == "inclusion":
        for _ in range(rng.integers(2, 5)):
            cx, cy = rng.uniform(0.1, 0.9, 2)
            img -= 60 * np.exp(-((xx - cx) / 0.02) ** 2 - ((yy - cy) / 0.15) ** 2)
    elif kind == "patches":
        for _ in range(rng.integers(2, 5)):
            cx, cy = rng.uniform(0.1, 0.9, 2)
            img -= 55 * (((xx - cx) ** 2 + (yy - cy) ** 2) < rng.uniform(0.005, 0.03))
    elif kind == "pitted":
        ys, xs = rng.integers(2, size - 2, (2, 150))
        for dy in (-1, 0, 1):
            img[ys + dy, xs] -= 70
    elif kind == "rolled_in":
        img -= 30 * (np.sin(35 * yy + 4 * np.sin(9 * xx + rng.uniform(0, 6))) > 0.6)
    else:
        for _ in range(rng.integers(2, 6)):
            s, c = rng.uniform(-0.4, 0.4), rng.uniform(0.1, 0.9)
            img += 70 * (np.abs(xx - c - s * yy) < 0.006)
    return Image.fromarray(np.clip(img, 0, 255).astype(np.uint8))


def make_dataset(root, n_train=120, n_val=20):
    rng = np.random.default_rng(0)
    for split, n in (("train", n_train), ("val", n_val)):
        for kind in CLASSES:
            folder = root / split / kind
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(n):
                draw_defect(kind, rng).save(folder / f"{kind}_{i + 1}.jpg", quality=92)


class DefectData(pl.LightningDataModule):
    def __init__(self, root, batch_size):
        super().__init__()
        self.root, self.batch_size = Path(root), batch_size
        norm = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        self.train_tf = T.Compose([
            T.RandomResizedCrop(96, scale=(0.5, 1.0)),
            T.RandomHorizontalFlip(),
            T.RandomVerticalFlip(),
            T.ColorJitter(0.3, 0.3),
            T.ToTensor(),
            norm,
        ])
        self.val_tf = T.Compose([T.Resize(112), T.CenterCrop(96), T.ToTensor(), norm])

    def prepare_data(self):
        if not (self.root / "val").exists():
            make_dataset(self.root)

    def setup(self, stage=None):
        self.train_set = ImageFolder(self.root / "train", self.train_tf)
        self.val_set = ImageFolder(self.root / "val", self.val_tf)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)


class DefectClassifier(pl.LightningModule):
    def __init__(self, n_classes=6, lr=1e-3, weight_decay=1e-2, label_smoothing=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = resnet18(num_classes=n_classes)
        self.train_acc = MulticlassAccuracy(n_classes)
        self.val_acc = MulticlassAccuracy(n_classes)
        self.val_f1 = MulticlassF1Score(n_classes)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, label_smoothing=self.hparams.label_smoothing)
        self.train_acc(logits, y)
        self.log("train/loss", loss, prog_bar=True)
        self.log("train/acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_acc(logits, y)
        self.val_f1(logits, y)
        self.log("val/loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val/acc", self.val_acc, prog_bar=True)
        self.log("val/f1", self.val_f1)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), self.hparams.lr,
                                weight_decay=self.hparams.weight_decay)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="neu_cls")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()

    pl.seed_everything(1)
    data = DefectData(args.data, args.batch_size)
    model = DefectClassifier()
    checkpoint = pl.callbacks.ModelCheckpoint(monitor="val/acc", mode="max")
    logger = pl.loggers.CSVLogger("logs", name="defects")
    trainer = pl.Trainer(max_epochs=args.epochs, accelerator="cpu", callbacks=[checkpoint],
                         logger=logger, log_every_n_steps=10)
    trainer.fit(model, data)
    print("best val acc:", checkpoint.best_model_score)


if __name__ == "__main__":
    main()
