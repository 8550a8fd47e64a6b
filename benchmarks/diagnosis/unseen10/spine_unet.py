import logging
import os
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset, random_split
from tqdm import tqdm

dir_base = Path(tempfile.gettempdir()) / "spine_unet"
dir_img = dir_base / "imgs"
dir_mask = dir_base / "masks"
dir_checkpoint = dir_base / "checkpoints"

SHAPE = (192, 192, 112)


def make_scans(n=8):
    dir_img.mkdir(parents=True, exist_ok=True)
    dir_mask.mkdir(parents=True, exist_ok=True)
    yy, xx = np.mgrid[: SHAPE[0], : SHAPE[1]]
    for i in range(n):
        if (dir_mask / f"case{i:02d}.nii").exists():
            continue
        rng = np.random.default_rng(100 + i)
        img = np.empty(SHAPE, np.int16)
        msk = np.zeros(SHAPE, np.uint8)
        for k in range(SHAPE[2]):
            cy = 110 + 14 * np.sin(k / 17 + i)
            cx = 96 + 10 * np.cos(k / 23)
            r = 17 + 4 * np.sin(k / 5)
            body = ((yy - cy) / 1.0) ** 2 + ((xx - cx) / 1.25) ** 2 < r * r
            canal = (yy - cy + r + 9) ** 2 + (xx - cx) ** 2 < 49
            msk[..., k] = body + 2 * (canal & ~body)
            base = 40 + 300 * body - 20 * canal
            noise = rng.standard_normal((48, 48)).repeat(4, 0).repeat(4, 1) * 45 + rng.standard_normal(yy.shape) * 25
            img[..., k] = (ndimage.uniform_filter(base.astype(np.float32), 3) + noise) * 2
        affine = np.diag([0.7, 0.7, 2.0, 1.0])
        ni = nib.Nifti1Image(img, affine)
        ni.header.set_slope_inter(0.5, -10)
        nib.save(ni, dir_img / f"case{i:02d}.nii")
        nib.save(nib.Nifti1Image(msk, affine), dir_mask / f"case{i:02d}.nii")


class SpineDataset(Dataset):
    def __init__(self, images_dir, mask_dir, stride=2):
        self.images_dir, self.mask_dir, self.stride = Path(images_dir), Path(mask_dir), stride
        self.ids = []
        for f in sorted(os.listdir(images_dir)):
            depth = nib.load(self.images_dir / f).shape[2]
            self.ids += [(f, k) for k in range(depth)]
        if not self.ids:
            raise RuntimeError(f"No input file found in {images_dir}, make sure you put your images there")
        logging.info(f"Creating dataset with {len(self.ids)} slices")

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, idx):
        name, k = self.ids[idx]
        img = nib.load(self.images_dir / name)
        mask = nib.load(self.mask_dir / name)
        assert img.shape == mask.shape, f"Image and mask {name} should be the same size"

        img = img.get_fdata()[:, :, k]
        mask = np.asarray(mask.dataobj[:, :, k])

        s = self.stride
        img = np.clip(img[::s, ::s], -200, 600) / 400.0
        return {
            "image": torch.as_tensor(img[None].copy()).float().contiguous(),
            "mask": torch.as_tensor(mask[::s, ::s].copy()).long().contiguous(),
        }


class DoubleConv(nn.Sequential):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, i, o):
        super().__init__(
            nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, w=8):
        super().__init__()
        self.n_classes = n_classes
        self.inc = DoubleConv(n_channels, w)
        self.down1 = DoubleConv(w, 2 * w)
        self.down2 = DoubleConv(2 * w, 4 * w)
        self.up1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.c1 = DoubleConv(4 * w, 2 * w)
        self.up2 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.c2 = DoubleConv(2 * w, w)
        self.outc = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x = self.c1(torch.cat([x2, self.up1(x3)], dim=1))
        x = self.c2(torch.cat([x1, self.up2(x)], dim=1))
        return self.outc(x)


def dice_loss(probs, target, eps=1e-6):
    inter = 2 * (probs * target).sum(dim=(0, 2, 3))
    sets = probs.sum(dim=(0, 2, 3)) + target.sum(dim=(0, 2, 3))
    return 1 - ((inter + eps) / (sets + eps)).mean()


@torch.inference_mode()
def evaluate(net, loader):
    net.eval()
    hit = tot = 0
    for batch in loader:
        pred = net(batch["image"]).argmax(1)
        hit += ((pred > 0) & (batch["mask"] > 0)).sum().item() * 2
        tot += (pred > 0).sum().item() + (batch["mask"] > 0).sum().item()
    net.train()
    return hit / max(tot, 1)


def train_model(model, epochs=400, batch_size=8, learning_rate=1e-3, val_percent=0.05):
    dataset = SpineDataset(dir_img, dir_mask)
    n_val = int(len(dataset) * val_percent)
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val], generator=torch.Generator().manual_seed(0))
    loader_args = dict(batch_size=batch_size, num_workers=2)
    train_loader = DataLoader(train_set, shuffle=True, drop_last=True, persistent_workers=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, **loader_args)

    optimizer = torch.optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.5, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    for epoch in range(1, epochs + 1):
        model.train()
        with tqdm(total=len(train_loader) * batch_size, desc=f"Epoch {epoch}/{epochs}", unit="img", mininterval=3) as pbar:
            for batch in train_loader:
                images, true_masks = batch["image"], batch["mask"]
                assert images.shape[1] == 1
                masks_pred = model(images)
                loss = criterion(masks_pred, true_masks)
                onehot = F.one_hot(true_masks, model.n_classes).permute(0, 3, 1, 2).float()
                loss = loss + dice_loss(F.softmax(masks_pred, dim=1).float(), onehot)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                pbar.update(images.shape[0])
                global_step += 1
                pbar.set_postfix(**{"loss (batch)": loss.item()}, refresh=False)
        if epoch % 5 == 0:
            score = evaluate(model, val_loader)
            scheduler.step(score)
            logging.info(f"step {global_step} Validation Dice score: {score}")
            dir_checkpoint.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), str(dir_checkpoint / "checkpoint.pth"))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    torch.manual_seed(0)
    make_scans()
    train_model(UNet(n_channels=1, n_classes=3))
