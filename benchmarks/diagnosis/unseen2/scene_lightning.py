import argparse
import os
import random

import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

NUM_CLASSES = 4
PER_CLASS = 120


def prepare_images(root):
    """500x375 jpegs in one folder per class"""
    if os.path.exists(os.path.join(root, "done")):
        return
    from skimage import data
    photo = Image.fromarray(data.astronaut())
    rng = random.Random(0)
    for c in range(NUM_CLASSES):
        d = os.path.join(root, "train", f"scene{c}")
        os.makedirs(d, exist_ok=True)
        for i in range(PER_CLASS):
            w = rng.randint(180, 240)
            x0 = (c % 2) * 200 + rng.randint(0, 70)
            y0 = (c // 2) * 230 + rng.randint(0, 90)
            im = photo.crop((x0, y0, x0 + w, y0 + int(0.75 * w))).resize((500, 375), Image.BICUBIC)
            im.save(os.path.join(d, f"{i:03d}.jpg"), quality=90)
    open(os.path.join(root, "done"), "w").close()


train_tf = transforms.Compose([
    transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
    transforms.RandomRotation(15, interpolation=transforms.InterpolationMode.BILINEAR),
    transforms.RandomResizedCrop(112, scale=(0.3, 1.0)),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class SceneNet(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(block(3, 16), block(16, 32), block(32, 48), block(48, 96),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, NUM_CLASSES))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        if self.global_step % 20 == 0:
            print(f"step {self.global_step} train loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="scenes")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()

    pl.seed_everything(1)
    prepare_images(args.root)
    ds = datasets.ImageFolder(os.path.join(args.root, "train"), train_tf)
    loader = DataLoader(ds, batch_size=args.batch_size, shuffle=True, drop_last=True,
                        num_workers=2, persistent_workers=True)
    trainer = pl.Trainer(max_epochs=args.epochs, accelerator="cpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(SceneNet(args.lr), loader)


if __name__ == "__main__":
    main()
