"""
Tutorial: train a small ResNet on JPEG patches, step by step.

We cut patches out of a few photographs and learn to tell which one a patch was cut
from. Everything runs on the CPU.
"""
import os
import random
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageEnhance
from skimage import data as photos
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

# ---------------------------------------------------------------------------
# Step 1: the files. One folder per class, just like ImageFolder expects them.
# ---------------------------------------------------------------------------
HERE = os.path.join(tempfile.gettempdir(), "photo_patches")
SOURCES = ["astronaut", "coffee", "chelsea", "rocket", "immunohistochemistry", "retina", "hubble_deep_field"]
PER_CLASS = 500
PATCH, CROP = 112, 96


def cut_patches():
    rng = random.Random(7)
    for name in SOURCES:
        folder = os.path.join(HERE, name)
        if os.path.isdir(folder):
            continue
        os.makedirs(folder + ".tmp", exist_ok=True)
        picture = Image.fromarray(getattr(photos, name)()[..., :3])
        for i in range(PER_CLASS):
            side = rng.randint(60, 160)
            x = rng.randrange(picture.width - side)
            y = rng.randrange(picture.height - side)
            patch = picture.crop((x, y, x + side, y + side)).resize((PATCH, PATCH), Image.BICUBIC)
            patch.rotate(90 * rng.randrange(4)).save(os.path.join(folder + ".tmp", f"{i:04d}.jpg"), quality=88)
        os.rename(folder + ".tmp", folder)


# ---------------------------------------------------------------------------
# Step 2: a Dataset that opens a file, augments it and returns a tensor.
# ---------------------------------------------------------------------------
class Patches(Dataset):
    mean = np.array([0.45, 0.40, 0.38], dtype=np.float32)
    std = np.array([0.27, 0.25, 0.25], dtype=np.float32)

    def __init__(self):
        self.items = []
        for label, name in enumerate(SOURCES):
            for file in sorted(os.listdir(os.path.join(HERE, name))):
                self.items.append((os.path.join(HERE, name, file), label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        path, label = self.items[index]
        with Image.open(path) as im:
            im = im.convert("RGB")
        dx, dy = random.randint(0, PATCH - CROP), random.randint(0, PATCH - CROP)
        im = im.crop((dx, dy, dx + CROP, dy + CROP))
        if random.random() < 0.5:
            im = im.transpose(Image.FLIP_LEFT_RIGHT)
        if random.random() < 0.3:
            im = ImageEnhance.Contrast(im).enhance(random.uniform(0.7, 1.3))
        array = (np.asarray(im, dtype=np.float32) / 255 - self.mean) / self.std
        return torch.from_numpy(array.transpose(2, 0, 1).copy()), label


# ---------------------------------------------------------------------------
# Step 3: the network, a residual net with a bottleneck stem.
# ---------------------------------------------------------------------------
def conv3x3(a, b, stride=1):
    return nn.Conv2d(a, b, 3, stride, 1, bias=False)


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(a, b, stride), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = conv3x3(b, b), nn.BatchNorm2d(b)
        self.skip = nn.Identity() if a == b and stride == 1 else nn.Conv2d(a, b, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu_(self.bn1(self.conv1(x)))
        return torch.relu_(self.bn2(self.conv2(y)) + self.skip(x))


class SmallResNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, previous = [nn.Conv2d(3, 64, 4, 4)], 64
        for width, stride in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)]:
            layers.append(Block(previous, width, stride))
            previous = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(previous, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean(dim=(2, 3)))


# ---------------------------------------------------------------------------
# Step 4: the loop.
# ---------------------------------------------------------------------------
def accuracy(logits, target):
    return (logits.argmax(dim=1) == target).float().mean().item()


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2 ** 32)


def main():
    seed_everything(123)
    cut_patches()
    dataset = Patches()
    counts = np.bincount([label for _, label in dataset.items])
    weights = [1.0 / counts[label] for _, label in dataset.items]
    sampler = WeightedRandomSampler(weights, num_samples=len(dataset), replacement=True)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=2, worker_init_fn=seed_worker, drop_last=True)
    model = SmallResNet(len(SOURCES))
    model = model.to(memory_format=torch.channels_last)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[15, 25], gamma=0.2)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    print(f"{len(dataset)} patches, {len(loader)} batches per epoch")
    for epoch in range(40):
        model.train()
        start = time.time()
        waiting, mark = 0.0, time.time()
        for step, (images, labels) in enumerate(loader):
            waiting += time.time() - mark
            images = images.contiguous(memory_format=torch.channels_last)
            logits = model(images)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            gradient = nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            if step % 5 == 0:
                print(f"epoch {epoch:2d} step {step:3d}  loss {loss.item():.4f}  acc {accuracy(logits, labels):.2f}  "
                      f"grad {gradient.item():.2f}  waited {waiting:.2f}s", flush=True)
            mark = time.time()
        ema.update_parameters(model)
        scheduler.step()
        torch.save({"model": model.state_dict(), "ema": ema.state_dict(), "epoch": epoch}, os.path.join(HERE, "checkpoint.pt"))
        print(f"epoch {epoch:2d} took {time.time() - start:.0f}s")


if __name__ == "__main__":
    main()
