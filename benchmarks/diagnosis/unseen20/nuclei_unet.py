"""U-Net for nuclei segmentation in fluorescence microscopy.

16-bit TIFF images with instance label masks; three classes (background, inside,
border) so that touching nuclei can be told apart. Scored by Dice and by counted nuclei.
"""
import glob
import os

import numpy as np
import tifffile
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage as ndi
from skimage.segmentation import find_boundaries
from torch.utils.data import DataLoader, Dataset

SIZE, CROP = 512, 128
BATCH_SIZE = 8
EPOCHS = 150


def synthesize(path, n_images, seed):
    rng = np.random.default_rng(seed)
    os.makedirs(f"{path}/images", exist_ok=True)
    os.makedirs(f"{path}/labels", exist_ok=True)
    for k in range(n_images):
        label = np.zeros((SIZE, SIZE), np.uint16)
        image = np.zeros((SIZE, SIZE), np.float32)
        for i in range(1, rng.integers(60, 120)):
            cy, cx = rng.uniform(15, SIZE - 15, 2)
            a, b = rng.uniform(8, 18, 2)
            theta = rng.uniform(0, np.pi)
            y0, x0 = max(int(cy) - 20, 0), max(int(cx) - 20, 0)
            yy, xx = np.mgrid[y0:min(y0 + 40, SIZE), x0:min(x0 + 40, SIZE)]
            u = (yy - cy) * np.cos(theta) + (xx - cx) * np.sin(theta)
            v = -(yy - cy) * np.sin(theta) + (xx - cx) * np.cos(theta)
            inside = ((u / a) ** 2 + (v / b) ** 2 < 1) & (label[yy, xx] == 0)
            label[yy[inside], xx[inside]] = i
            image[yy[inside], xx[inside]] = rng.uniform(0.4, 1.0)
        image = ndi.gaussian_filter(image, 1.5)
        image = rng.poisson(image * 400 + 60) + rng.normal(0, 8, image.shape)
        tifffile.imwrite(f"{path}/images/{k:03d}.tif", np.clip(image, 0, 65535).astype(np.uint16))
        tifffile.imwrite(f"{path}/labels/{k:03d}.tif", label, compression="zlib")


class NucleiDataset(Dataset):
    def __init__(self, root, crops_per_image=4, train=True):
        self.images = sorted(glob.glob(f"{root}/images/*.tif"))
        self.labels = sorted(glob.glob(f"{root}/labels/*.tif"))
        self.crops_per_image = crops_per_image
        self.train = train

    def __len__(self):
        return len(self.images) * self.crops_per_image

    def __getitem__(self, idx):
        i = idx // self.crops_per_image
        image = tifffile.imread(self.images[i]).astype(np.float32)
        label = tifffile.imread(self.labels[i])

        lo, hi = np.percentile(image, (1, 99.8))
        image = (image - lo) / (hi - lo)
        border = find_boundaries(label, mode="inner")
        target = np.where(border, 2, label > 0).astype(np.int64)

        rng = np.random if self.train else np.random.RandomState(idx)
        y, x = rng.randint(0, SIZE - CROP, 2)
        image = image[y:y + CROP, x:x + CROP]
        target = target[y:y + CROP, x:x + CROP]
        if self.train:
            k = np.random.randint(4)
            image, target = np.rot90(image, k), np.rot90(target, k)
            if np.random.rand() < 0.5:
                image, target = image[:, ::-1], target[:, ::-1]
            image = image * np.random.uniform(0.8, 1.2) + np.random.normal(0, 0.05)
        return torch.from_numpy(image.copy())[None].float(), torch.from_numpy(target.copy())


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128), n_classes=3):
        super().__init__()
        self.down = nn.ModuleList(
            double_conv(c_in, c_out) for c_in, c_out in zip((1,) + widths[:-1], widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(c, c // 2, 2, stride=2) for c in widths[:0:-1])
        self.dec = nn.ModuleList(double_conv(c, c // 2) for c in widths[:0:-1])
        self.head = nn.Conv2d(widths[0], n_classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, dec in zip(self.up, self.dec):
            x = dec(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


def dice_loss(logits, target, eps=1.0):
    prob = logits.softmax(1)
    onehot = F.one_hot(target, logits.shape[1]).permute(0, 3, 1, 2).float()
    inter = (prob * onehot).sum((0, 2, 3))
    return 1 - ((2 * inter + eps) / (prob.sum((0, 2, 3)) + onehot.sum((0, 2, 3)) + eps)).mean()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    inter = total = 0
    count_error = []
    for image, target in loader:
        pred = model(image).argmax(1)
        inter += ((pred == 1) & (target == 1)).sum().item()
        total += (pred == 1).sum().item() + (target == 1).sum().item()
        for p, t in zip(pred.numpy(), target.numpy()):
            count_error.append(abs(ndi.label(p == 1)[1] - ndi.label(t == 1)[1]))
    model.train()
    return 2 * inter / total, np.mean(count_error)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    synthesize("data/train", 40, seed=0)
    synthesize("data/val", 6, seed=1)
    train_loader = DataLoader(NucleiDataset("data/train"), BATCH_SIZE, shuffle=True)
    val_loader = DataLoader(NucleiDataset("data/val", train=False), BATCH_SIZE)

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    class_weight = torch.tensor([1.0, 1.0, 3.0])
    for epoch in range(EPOCHS):
        running = 0.0
        for image, target in train_loader:
            logits = model(image)
            loss = F.cross_entropy(logits, target, class_weight) + dice_loss(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        scheduler.step()
        dice, count_error = evaluate(model, val_loader)
        print(f"epoch {epoch:3d}  loss {running / len(train_loader):.4f}  "
              f"dice {dice:.4f}  count error {count_error:.2f}", flush=True)
        torch.save(model.state_dict(), "unet.pt")


if __name__ == "__main__":
    main()
