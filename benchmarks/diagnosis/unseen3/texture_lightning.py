"""Texture recognition: ResNet features + trainable classification head (Lightning)."""
import os
import time

import numpy as np
import pytorch_lightning as pl
import skimage.data
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset

PHOTOS = ["brick", "grass", "gravel", "camera", "coins", "astronaut", "coffee", "chelsea"]
BACKBONE_WEIGHTS = os.path.expanduser("~/weights/resnet18_textures.pt")


class TextureCrops(Dataset):
    def __init__(self, n=3000, size=64, seed=0):
        rng = np.random.default_rng(seed)
        photos = []
        for label, name in enumerate(PHOTOS):
            try:
                img = getattr(skimage.data, name)()
            except Exception:
                continue
            if img.ndim == 2:
                img = np.repeat(img[..., None], 3, 2)
            photos.append((label, img[..., :3]))
        self.x = np.empty((n, 3, size, size), np.float32)
        self.y = np.empty(n, np.int64)
        for k in range(n):
            label, img = photos[k % len(photos)]
            r, c = rng.integers(0, img.shape[0] - size), rng.integers(0, img.shape[1] - size)
            crop = img[r : r + size, c : c + size]
            self.x[k] = (np.rot90(crop, rng.integers(4)).transpose(2, 0, 1) / 255.0 - 0.45) / 0.25
            self.y[k] = label

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class TextureModel(pl.LightningModule):
    def __init__(self, lr=1e-3, n_classes=len(PHOTOS)):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = torchvision.models.resnet18(weights=None)
        self.backbone.fc = nn.Identity()
        if os.path.exists(BACKBONE_WEIGHTS):
            self.backbone.load_state_dict(torch.load(BACKBONE_WEIGHTS))
        self.head = nn.Sequential(
            nn.LayerNorm(512), nn.Linear(512, 256), nn.GELU(), nn.Dropout(0.2), nn.Linear(256, n_classes)
        )

    def forward(self, x):
        # only the head is trained, the backbone stays as it is
        self.backbone.eval()
        features = self.backbone(x)
        return self.head(features)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        acc = (logits.argmax(1) == y).float().mean()
        self.log_dict({"loss": loss, "acc": acc})
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.head.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=60)
        return {"optimizer": opt, "lr_scheduler": sched}


class SpeedPrinter(pl.Callback):
    def __init__(self, every=5):
        self.every = every
        self.t = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        step = trainer.global_step
        if self.t is None:
            self.t = time.time()
        elif step % self.every == 0:
            now = time.time()
            m = trainer.callback_metrics
            print(
                f"step {step} loss {float(m['loss']):.3f} acc {float(m['acc']):.2f} "
                f"{self.every * len(batch[1]) / (now - self.t):.1f} crops/s",
                flush=True,
            )
            self.t = now


def main():
    pl.seed_everything(0)
    data = TextureCrops()
    print(len(data), "crops")
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    trainer = pl.Trainer(
        max_epochs=60, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[SpeedPrinter()],
    )
    trainer.fit(TextureModel(), loader)


if __name__ == "__main__":
    main()
