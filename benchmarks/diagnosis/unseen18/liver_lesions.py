"""Segmentation of liver lesions in CT volumes with a 3D U-Net (MONAI)."""
import glob
import os
import tempfile
import time

import nibabel as nib
import numpy as np
import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import (AsDiscrete, Compose, CropForegroundd, EnsureChannelFirstd, LoadImaged, Orientationd,
                              RandCropByPosNegLabeld, RandFlipd, RandGaussianNoised, RandScaleIntensityd,
                              ScaleIntensityRanged, Spacingd)
from monai.utils import set_determinism
from scipy.ndimage import gaussian_filter, zoom

ROOT = os.path.join(tempfile.gettempdir(), "liver_lesions")
N_CASES = 20


def synthesize_case(rng):
    """An abdomen-like ellipsoid with a liver and a few dark lesions, in Hounsfield units."""
    shape = (128, 128, 56)
    z = np.stack(np.meshgrid(*[np.linspace(-1, 1, s, dtype=np.float32) for s in shape], indexing="ij"))

    def ellipsoid(center, radius):
        c, r = np.array(center).reshape(3, 1, 1, 1), np.array(radius).reshape(3, 1, 1, 1)
        return (((z - c) / r) ** 2).sum(0) < 1

    volume = np.full(shape, -1000, dtype=np.float32)
    volume[ellipsoid((0, 0, 0), (0.8, 0.65, 1.4))] = 40
    liver = ellipsoid(rng.uniform(-0.1, 0.1, 3) + np.array([-0.25, 0, 0]), rng.uniform(0.35, 0.5, 3))
    volume[liver] = 105
    label = np.zeros(shape, dtype=np.uint8)
    inside = np.argwhere(liver)
    for _ in range(rng.integers(2, 6)):
        center = z[(slice(None),) + tuple(inside[rng.integers(len(inside))])]
        lesion = ellipsoid(center, rng.uniform(0.06, 0.18, 3)) & liver
        volume[lesion] = rng.uniform(40, 80)
        label[lesion] = 1
    coarse = gaussian_filter(rng.normal(0, 60, (32, 32, 14)), 1)
    volume += zoom(coarse, 4, order=1) + rng.normal(0, 12, shape)
    return np.round(volume).astype(np.int16), label


def make_data():
    os.makedirs(ROOT, exist_ok=True)
    rng = np.random.default_rng(7)
    for i in range(N_CASES):
        volume, label = synthesize_case(rng)
        spacing = (rng.uniform(1.3, 1.7), rng.uniform(1.3, 1.7), rng.uniform(2.0, 3.0))
        affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
        nib.save(nib.Nifti1Image(volume, affine), os.path.join(ROOT, f"case{i:02d}_ct.nii.gz"))
        nib.save(nib.Nifti1Image(label, affine), os.path.join(ROOT, f"case{i:02d}_seg.nii.gz"))
    open(os.path.join(ROOT, "done"), "w").close()


def preprocessing():
    keys = ["image", "label"]
    return [
        LoadImaged(keys=keys),
        EnsureChannelFirstd(keys=keys),
        Orientationd(keys=keys, axcodes="RAS"),
        Spacingd(keys=keys, pixdim=(1.6, 1.6, 2.4), mode=("bilinear", "nearest")),
        ScaleIntensityRanged(keys=["image"], a_min=-150, a_max=250, b_min=0.0, b_max=1.0, clip=True),
        CropForegroundd(keys=keys, source_key="image"),
    ]


def main():
    if not os.path.exists(os.path.join(ROOT, "done")):
        make_data()
    set_determinism(seed=0)

    images = sorted(glob.glob(os.path.join(ROOT, "*_ct.nii.gz")))
    files = [{"image": p, "label": p.replace("_ct", "_seg")} for p in images]
    train_files, val_files = files[:-3], files[-3:]

    keys = ["image", "label"]
    train_transforms = Compose(preprocessing() + [
        RandCropByPosNegLabeld(keys=keys, label_key="label", spatial_size=(32, 32, 16), pos=1, neg=1, num_samples=2),
        RandFlipd(keys=keys, prob=0.5, spatial_axis=0),
        RandFlipd(keys=keys, prob=0.5, spatial_axis=1),
        RandScaleIntensityd(keys=["image"], factors=0.1, prob=0.5),
        RandGaussianNoised(keys=["image"], prob=0.3, std=0.02),
    ])
    train_ds = Dataset(data=train_files, transform=train_transforms)
    train_loader = DataLoader(train_ds, batch_size=1, shuffle=True)
    val_ds = Dataset(data=val_files, transform=Compose(preprocessing()))
    val_loader = DataLoader(val_ds, batch_size=1)

    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64), strides=(2, 2),
                 num_res_units=1, norm="instance")
    loss_function = DiceCELoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    dice_metric = DiceMetric(include_background=False, reduction="mean")
    post_pred = AsDiscrete(argmax=True, to_onehot=2)
    post_label = AsDiscrete(to_onehot=2)

    best, val_interval = -1.0, 10
    for epoch in range(400):
        model.train()
        epoch_loss, start = 0.0, time.time()
        for batch in train_loader:
            inputs, labels = batch["image"], batch["label"]
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = loss_function(outputs, labels)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        print(f"epoch {epoch + 1}: loss {epoch_loss / len(train_loader):.4f} "
              f"({len(train_loader)} steps in {time.time() - start:.1f} s)", flush=True)

        if (epoch + 1) % val_interval == 0:
            model.eval()
            with torch.no_grad():
                for batch in val_loader:
                    pred = sliding_window_inference(batch["image"], (32, 32, 16), 8, model)
                    pred = [post_pred(p) for p in decollate_batch(pred)]
                    truth = [post_label(p) for p in decollate_batch(batch["label"])]
                    dice_metric(y_pred=pred, y=truth)
            dice = dice_metric.aggregate().item()
            dice_metric.reset()
            print(f"  validation dice {dice:.4f}", flush=True)
            if dice > best:
                best = dice
                torch.save(model.state_dict(), os.path.join(ROOT, "best_model.pt"))


if __name__ == "__main__":
    main()
