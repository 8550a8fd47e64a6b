"""Canteen dishes: fine-grained photo classification, run through accelerate."""
import io
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.transforms import v2

DISHES = ["soup", "salad", "pasta", "curry", "pancake", "pie"]
COLOURS = [(200, 120, 50), (80, 150, 60), (220, 190, 110), (190, 140, 30), (215, 165, 90), (150, 90, 50)]


def photograph(kind, rnd):
    table = tuple(rnd.randint(70, 180) for _ in range(3))
    im = Image.new("RGB", (320, 240), table)
    d = ImageDraw.Draw(im)
    x, y, r = rnd.randint(120, 200), rnd.randint(100, 140), rnd.randint(75, 95)
    d.ellipse([x - r, y - r, x + r, y + r], fill=(235, 235, 230))
    d.ellipse([x - r + 18, y - r + 18, x + r - 18, y + r - 18], fill=(210, 205, 195))
    for _ in range(50 + 30 * kind):
        px, py = x + rnd.gauss(0, r / 3), y + rnd.gauss(0, r / 3)
        s = 3 + (kind * 7) % 11 + rnd.random() * 4
        c = tuple(min(255, max(0, v + rnd.randint(-35, 35))) for v in COLOURS[kind])
        if kind % 2:
            d.ellipse([px - s, py - s, px + s, py + s], fill=c)
        else:
            d.line([px, py, px + rnd.gauss(0, 3 * s), py + rnd.gauss(0, 3 * s)], fill=c, width=4)
    return im.filter(ImageFilter.GaussianBlur(rnd.uniform(0.2, 1.2)))


def make_folder(root, per_dish):
    rnd = random.Random(6)
    for k, name in enumerate(DISHES):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for j in range(per_dish):
            target = folder / f"{j:03d}.jpg"
            if not target.exists():
                photograph(k, rnd).save(target, quality=88)


class Photos(Dataset):
    """Reads every photograph once, keeps it scaled to a short side of 128 as bytes in memory."""

    def __init__(self, root, keep, transform):
        self.transform = transform
        self.pixels, self.labels = [], []
        for k, name in enumerate(DISHES):
            for f in sorted((root / name).iterdir()):
                if not keep(int(f.stem)):
                    continue
                with Image.open(io.BytesIO(f.read_bytes())) as im:
                    small = im.convert("RGB").resize((170, 128), Image.BILINEAR)
                self.pixels.append(torch.from_numpy(np.array(small)).permute(2, 0, 1).contiguous())
                self.labels.append(k)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.pixels[i]), self.labels[i]


def transforms(train):
    if train:
        return v2.Compose([v2.RandomResizedCrop(96, scale=(0.4, 1.0), antialias=True), v2.RandomHorizontalFlip(),
                           v2.ColorJitter(0.2, 0.2), v2.ToDtype(torch.float32, scale=True),
                           v2.Normalize([0.5] * 3, [0.25] * 3)])
    return v2.Compose([v2.CenterCrop(112), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])


def build_model():
    net = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=len(DISHES))
    net.conv1 = nn.Conv2d(3, 64, 5, stride=2, padding=2, bias=False)
    return net


def main():
    set_seed(6)
    root = Path(tempfile.gettempdir()) / "dish_photos_demo"
    make_folder(root, per_dish=90)
    accelerator = Accelerator(cpu=True)
    train = Photos(root, lambda j: j % 9 != 0, transforms(True))
    test = Photos(root, lambda j: j % 9 == 0, transforms(False))
    workers = min(2, max(1, (os.cpu_count() or 2) - 1))
    train_dl = DataLoader(train, batch_size=16, shuffle=True, drop_last=True, num_workers=workers,
                          persistent_workers=True, prefetch_factor=3)
    test_dl = DataLoader(test, batch_size=30)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
    epochs = 80
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.06, epochs=epochs, steps_per_epoch=len(train_dl))
    model, optimizer, train_dl, test_dl, schedule = accelerator.prepare(model, optimizer, train_dl, test_dl, schedule)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(epochs):
        model.train()
        for step, (x, y) in enumerate(train_dl):
            with accelerator.accumulate(model):
                loss = loss_fn(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if step % 10 == 0:
                accelerator.print(f"epoch {epoch} step {step}/{len(train_dl)} loss {loss.item():.4f}", flush=True)
        if epoch % 3 == 2:
            model.eval()
            with torch.no_grad():
                hits = sum((model(x).argmax(1) == y).sum().item() for x, y in test_dl)
            accelerator.print(f"epoch {epoch} accuracy {hits / len(test):.3f}", flush=True)


if __name__ == "__main__":
    main()
