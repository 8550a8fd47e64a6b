"""Source masks for wide-field exposures (small U-Net, Lightning)."""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from scipy import ndimage
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(tempfile.gettempdir()) / "star_fields"
MIN_AREA = 5


# ---------------------------------------------------------------- simulation
def render_field(rng, size):
    """One exposure: point sources and a few faint galaxies on a noisy sky."""
    img = np.zeros((size, size), np.float32)
    truth = np.zeros((size, size), bool)
    yy, xx = np.mgrid[-7:8, -7:8]
    for _ in range(rng.integers(750, 950)):
        y, x = rng.integers(8, size - 8, 2)
        s = rng.uniform(0.9, 1.6) if rng.random() < 0.85 else rng.uniform(2, 3)
        flux = rng.pareto(1.6) + 0.6
        psf = flux * np.exp(-(yy ** 2 + xx ** 2) / (2 * s * s))
        img[y - 7:y + 8, x - 7:x + 8] += psf
        truth[y - 7:y + 8, x - 7:x + 8] |= psf > 0.35
    sky = ndimage.gaussian_filter(rng.normal(0, 1, img.shape), 20) * 2
    img += sky + rng.normal(0, 0.12, img.shape)
    return np.arcsinh(img).astype(np.float32), truth


def simulate(n, size, seed):
    path = ROOT / f"fields_{n}_{size}_{seed}.npz"
    if not path.exists():
        ROOT.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        pairs = [render_field(rng, size) for _ in range(n)]
        np.savez(path, img=np.stack([p[0] for p in pairs]),
                 mask=np.stack([p[1] for p in pairs]))
    z = np.load(path)
    return TensorDataset(torch.from_numpy(z["img"])[:, None],
                         torch.from_numpy(z["mask"])[:, None])


# ------------------------------------------------------------------- metrics
def clean_mask(prob, threshold=0.5, min_area=MIN_AREA):
    """Binary detection map without specks of fewer than min_area pixels."""
    labels, count = ndimage.label(prob > threshold)
    out = np.zeros(prob.shape, bool)
    found = 0
    for k in range(1, count + 1):
        blob = labels == k
        if blob.sum() >= min_area:
            out[blob] = True
            found += 1
    return out, found


def detection_scores(prob, truth):
    dice, excess = [], []
    for p, t in zip(prob, truth):
        mask, found = clean_mask(p)
        _, expected = ndimage.label(t)
        dice.append(2 * (mask & t).sum() / max(mask.sum() + t.sum(), 1))
        excess.append(found - expected)
    return float(np.mean(dice)), float(np.mean(excess))


# --------------------------------------------------------------------- model
def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True))


class SourceFinder(pl.LightningModule):
    def __init__(self, width=6, lr=1e-2, pos_weight=3.0):
        super().__init__()
        self.save_hyperparameters()
        w = width
        self.enc1, self.enc2, self.mid = block(4, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.dec2, self.dec1 = block(6 * w, 2 * w), block(3 * w, w)
        self.head = nn.Conv2d(w, 4, 1)
        nn.init.constant_(self.head.bias, -1.0)

    def forward(self, x):
        a = self.enc1(F.pixel_unshuffle(x, 2))
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([b, F.interpolate(c, scale_factor=2.0)], 1))
        a = self.dec1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))
        return F.pixel_shuffle(self.head(a), 2)

    def _shared(self, batch, stage):
        x, y = batch
        logits = self(x)
        loss = F.binary_cross_entropy_with_logits(
            logits, y.float(), pos_weight=torch.tensor(self.hparams.pos_weight))
        prob = logits.detach().sigmoid()[:, 0].cpu().numpy()
        dice, excess = detection_scores(prob, y[:, 0].cpu().numpy())
        self.log_dict({f"{stage}_loss": loss, f"{stage}_dice": dice,
                       f"{stage}_excess": excess}, batch_size=len(x))
        return loss

    def training_step(self, batch, batch_idx):
        return self._shared(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._shared(batch, "val")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, max_lr=self.hparams.lr, pct_start=0.02,
            total_steps=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Progress(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % 50 == 0:
            m = trainer.callback_metrics
            print(f"step {trainer.global_step} loss {m['train_loss']:.3f} "
                  f"dice {m['train_dice']:.3f} excess {m['train_excess']:+.1f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=416)
    p.add_argument("--batch-size", type=int, default=2)
    p.add_argument("--epochs", type=int, default=40)
    args = p.parse_args()
    pl.seed_everything(5)
    train = DataLoader(simulate(120, args.size, 1), args.batch_size, shuffle=True)
    val = DataLoader(simulate(8, args.size, 2), args.batch_size)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=args.epochs, log_every_n_steps=20,
        check_val_every_n_epoch=2, enable_progress_bar=False,
        logger=CSVLogger(str(ROOT), name="log"), num_sanity_val_steps=0,
        callbacks=[Progress(), ModelCheckpoint(dirpath=ROOT / "ckpt", monitor="val_dice", mode="max")])
    trainer.fit(SourceFinder(), train, val)


if __name__ == "__main__":
    main()
