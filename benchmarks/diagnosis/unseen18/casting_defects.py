"""Defect classification of casting photos. Head for the new product line on top of the
ResNet that was trained last year on the old line (Lightning version of the Keras notebook)."""
import os
import tempfile

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import timm
import torch
from PIL import Image, ImageDraw, ImageFilter
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

ROOT = os.path.join(tempfile.gettempdir(), "casting_defects")
CLASSES = ["ok", "scratch", "pore", "crack", "flash"]
SIZE = 96
N_IMAGES = 3200


def draw_part(rng, label):
    img = Image.fromarray(rng.normal(135, 9, (SIZE, SIZE)).clip(0, 255).astype(np.uint8))
    d = ImageDraw.Draw(img)
    c = SIZE // 2 + int(rng.integers(-6, 7))
    r = int(rng.integers(30, 39))
    d.ellipse([c - r, c - r, c + r, c + r], fill=int(rng.integers(165, 190)), outline=90)
    d.ellipse([c - 14, c - 14, c + 14, c + 14], fill=70)
    x, y = (c + rng.uniform(-0.6, 0.6, 2) * r).astype(int)
    dark = int(rng.integers(60, 130))
    if label == "scratch":
        dx, dy = rng.integers(-20, 21, 2)
        d.line([x, y, x + int(dx), y + int(dy)], fill=230, width=1)
    elif label == "pore":
        for _ in range(int(rng.integers(1, 5))):
            px, py = x + int(rng.integers(-8, 9)), y + int(rng.integers(-8, 9))
            d.ellipse([px - 2, py - 2, px + 2, py + 2], fill=dark)
    elif label == "crack":
        pts = np.cumsum(np.vstack([[x, y], rng.integers(-6, 7, (7, 2))]), axis=0)
        d.line([tuple(int(v) for v in p) for p in pts], fill=dark, width=2)
    elif label == "flash":
        a = int(rng.integers(0, 360))
        d.arc([c - r - 4, c - r - 4, c + r + 4, c + r + 4], a, a + 40, fill=200, width=5)
    return img.filter(ImageFilter.GaussianBlur(0.6))


def prepare_folder():
    table = os.path.join(ROOT, "labels.csv")
    if os.path.exists(table):
        return table
    os.makedirs(os.path.join(ROOT, "images"), exist_ok=True)
    rng = np.random.default_rng(5)
    rows = []
    for i in range(N_IMAGES):
        label = rng.choice(CLASSES, p=[0.5, 0.15, 0.15, 0.1, 0.1])
        name = f"part_{i:05d}.png"
        draw_part(rng, label).save(os.path.join(ROOT, "images", name))
        rows.append({"file": name, "label": label, "split": "val" if i % 8 == 0 else "train"})
    # stands in for the weights file of the old line
    torch.manual_seed(99)
    torch.save(timm.create_model("resnet18", num_classes=0).state_dict(), os.path.join(ROOT, "old_line.pt"))
    pd.DataFrame(rows).to_csv(table, index=False)
    return table


class CastingDataset(Dataset):
    def __init__(self, df, augment):
        self.files = df["file"].tolist()
        self.labels = [CLASSES.index(v) for v in df["label"]]
        self.augment = augment

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        img = Image.open(os.path.join(ROOT, "images", self.files[i])).convert("RGB")
        x = np.asarray(img, dtype=np.float32) / 255.0
        if self.augment:
            if np.random.rand() < 0.5:
                x = x[:, ::-1]
            x = np.rot90(x, np.random.randint(4))
            x = x * np.random.uniform(0.85, 1.15)
        x = (x - 0.5) / 0.25
        return torch.tensor(x.transpose(2, 0, 1).copy(), dtype=torch.float32), self.labels[i]


class DefectClassifier(pl.LightningModule):
    def __init__(self, weights, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.backbone = timm.create_model("resnet18", num_classes=0)
        self.backbone.load_state_dict(torch.load(weights))
        self.head = nn.Sequential(
            nn.Linear(self.backbone.num_features, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, len(CLASSES)))
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 1.0, 1.5, 1.5]))
        self.val_acc = MulticlassAccuracy(len(CLASSES), average="micro")
        self.val_f1 = MulticlassF1Score(len(CLASSES))

    def forward(self, x):
        features = self.backbone(x)
        return self.head(features)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        self.val_acc(out, y)
        self.val_f1(out, y)
        self.log("val_loss", self.loss(out, y), prog_bar=True)
        self.log("val_acc", self.val_acc, prog_bar=True)
        self.log("val_f1", self.val_f1, prog_bar=True)

    def configure_optimizers(self):
        # only the new head is trained, the old line's backbone stays as it is
        return torch.optim.Adam(self.head.parameters(), lr=self.lr)


def main():
    pl.seed_everything(1)
    df = pd.read_csv(prepare_folder())
    train_ds = CastingDataset(df[df["split"] == "train"], augment=True)
    val_ds = CastingDataset(df[df["split"] == "val"], augment=False)
    train_dl = DataLoader(train_ds, batch_size=16, shuffle=True, drop_last=True)
    val_dl = DataLoader(val_ds, batch_size=32)
    model = DefectClassifier(os.path.join(ROOT, "old_line.pt"))
    trainer = pl.Trainer(
        max_epochs=15,
        accelerator="cpu",
        log_every_n_steps=10,
        logger=CSVLogger(ROOT, name="logs"),
        callbacks=[EarlyStopping("val_loss", patience=8),
                   ModelCheckpoint(dirpath=os.path.join(ROOT, "ckpt"), monitor="val_f1", mode="max")],
        num_sanity_val_steps=0,
    )
    trainer.fit(model, train_dl, val_dl)


if __name__ == "__main__":
    main()
