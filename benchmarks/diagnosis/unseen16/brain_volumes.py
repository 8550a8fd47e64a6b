"""Segment lesions in small brain volumes with a 3-D U-Net (MONAI transforms and network, Lightning loop)."""
import json
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pytorch_lightning as pl
import torch
from monai.data import CacheDataset, decollate_batch, list_data_collate
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import (
    AsDiscrete,
    Compose,
    EnsureChannelFirstd,
    LoadImaged,
    NormalizeIntensityd,
    RandCropByPosNegLabeld,
    RandFlipd,
    RandScaleIntensityd,
)
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from scipy.ndimage import gaussian_filter
from torch.utils.data import DataLoader

ROOT = Path(tempfile.gettempdir()) / "brain_volumes"
SHAPE = (64, 64, 48)
PATCH = (32, 32, 32)


def make_volumes(n=20):
    if (ROOT / "dataset.json").exists():
        return
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(9)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, s) for s in SHAPE], indexing="ij"))
    entries = []
    for i in range(n):
        radius = rng.uniform(0.7, 0.9, 3)
        brain = ((grid / radius[:, None, None, None]) ** 2).sum(0) < 1
        texture = gaussian_filter(rng.normal(0, 1, SHAPE), 2) * 4
        lesion = np.zeros(SHAPE, dtype=bool)
        for _ in range(rng.integers(2, 6)):
            centre = rng.uniform(-0.5, 0.5, 3)
            lesion |= ((grid - centre[:, None, None, None]) ** 2).sum(0) < rng.uniform(0.08, 0.2) ** 2
        image = brain * (100 + 15 * texture + 30 * gaussian_filter(lesion.astype(float), 1)) + rng.normal(0, 5, SHAPE)
        entry = {"image": str(ROOT / f"sub-{i:02d}_flair.nii.gz"), "label": str(ROOT / f"sub-{i:02d}_lesion.nii.gz")}
        nib.save(nib.Nifti1Image(image.astype(np.float32), np.eye(4)), entry["image"])
        nib.save(nib.Nifti1Image((lesion & brain).astype(np.uint8), np.eye(4)), entry["label"])
        entries.append(entry)
    (ROOT / "dataset.json").write_text(json.dumps({"training": entries}, indent=2))


class LesionDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=2, patches_per_volume=2):
        super().__init__()
        self.batch_size = batch_size
        self.patches_per_volume = patches_per_volume

    def prepare_data(self):
        make_volumes()

    def setup(self, stage=None):
        entries = json.loads((ROOT / "dataset.json").read_text())["training"]
        keys = ["image", "label"]
        load = [
            LoadImaged(keys),
            EnsureChannelFirstd(keys),
            NormalizeIntensityd("image", nonzero=True),
        ]
        augment = [
            RandCropByPosNegLabeld(keys, "label", PATCH, pos=2, neg=1, num_samples=self.patches_per_volume),
            RandFlipd(keys, prob=0.5, spatial_axis=0),
            RandScaleIntensityd("image", factors=0.1, prob=0.5),
        ]
        self.train_set = CacheDataset(entries[:16], Compose(load + augment), progress=False)
        self.val_set = CacheDataset(entries[16:18], Compose(load), progress=False)
        self.test_set = CacheDataset(entries[18:], Compose(load), progress=False)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, collate_fn=list_data_collate)

    def val_dataloader(self):
        return DataLoader(self.val_set, 1, collate_fn=list_data_collate)

    def test_dataloader(self):
        return DataLoader(self.test_set, 1, collate_fn=list_data_collate)


class LesionSegmenter(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet(
            spatial_dims=3,
            in_channels=1,
            out_channels=2,
            channels=(16, 32, 64, 128),
            strides=(2, 2, 2),
            num_res_units=2,
            norm="batch",
        )
        self.loss = DiceCELoss(to_onehot_y=True, softmax=True)
        self.dice = DiceMetric(include_background=False, reduction="mean")
        self.to_prediction = AsDiscrete(argmax=True, to_onehot=2)
        self.to_reference = AsDiscrete(to_onehot=2)

    def forward(self, x):
        return self.net(x.contiguous(memory_format=torch.channels_last_3d))

    def training_step(self, batch, batch_idx):
        loss = self.loss(self(batch["image"]), batch["label"])
        self.log("train_loss", loss, prog_bar=True, batch_size=batch["image"].shape[0])
        return loss

    def evaluate(self, batch):
        logits = sliding_window_inference(batch["image"], PATCH, sw_batch_size=4, predictor=self.net, overlap=0.25)
        predictions = [self.to_prediction(p) for p in decollate_batch(logits)]
        references = [self.to_reference(r) for r in decollate_batch(batch["label"])]
        self.dice(y_pred=predictions, y=references)
        return self.loss(logits, batch["label"])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.evaluate(batch), batch_size=1)

    def on_validation_epoch_end(self):
        self.log("val_dice", self.dice.aggregate().item(), prog_bar=True)
        self.dice.reset()

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.evaluate(batch), batch_size=1)

    def on_test_epoch_end(self):
        self.log("test_dice", self.dice.aggregate().item())
        self.dice.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=150)
        return [optimizer], [scheduler]


if __name__ == "__main__":
    pl.seed_everything(3)
    trainer = pl.Trainer(
        max_epochs=150,
        accelerator="cpu",
        check_val_every_n_epoch=5,
        log_every_n_steps=4,
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[ModelCheckpoint(monitor="val_dice", mode="max"), LearningRateMonitor("epoch")],
    )
    data = LesionDataModule()
    model = LesionSegmenter().to(memory_format=torch.channels_last_3d)
    trainer.fit(model, data)
    trainer.test(model, data)
