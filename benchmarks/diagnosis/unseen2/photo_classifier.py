# Classify holiday photos by region, from jpg files
import glob
import os
import random

import torch
import torch.nn as nn
from PIL import Image
from torchvision import transforms as T

ROOT = "photos_480"
N_FILES = 480
N_CLASSES = 4
BATCH = 16
EPOCHS = 200


def prepare():
    """Cut 480x360 photos out of the big picture; the class is the quadrant they come from."""
    if len(glob.glob(ROOT + "/*.jpg")) >= N_FILES:
        return
    from skimage import data
    big = Image.fromarray(data.astronaut())
    os.makedirs(ROOT, exist_ok=True)
    rng = random.Random(1)
    for i in range(N_FILES):
        label = i % N_CLASSES
        x0 = (label % 2) * 200 + rng.randint(0, 60)
        y0 = (label // 2) * 220 + rng.randint(0, 60)
        w = rng.randint(200, 250)
        im = big.crop((x0, y0, x0 + w, y0 + int(w * 0.75))).resize((480, 360), Image.BICUBIC)
        im.save(f"{ROOT}/{i:04d}_{label}.jpg", quality=92)


augment = T.Compose([
    T.RandomResizedCrop(128, scale=(0.2, 1.0)),
    T.RandomHorizontalFlip(),
    T.ColorJitter(0.3, 0.3, 0.3),
    T.ToTensor(),
    T.Normalize([0.5] * 3, [0.25] * 3),
])


def load(path):
    with Image.open(path) as im:
        x = augment(im.convert("RGB"))
    return x, int(path[-5])


def batches(files):
    files = list(files)
    random.shuffle(files)
    for i in range(0, len(files) - BATCH + 1, BATCH):
        xs, ys = zip(*[load(f) for f in files[i:i + BATCH]])
        yield torch.stack(xs), torch.tensor(ys)


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False),
                         nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def main():
    random.seed(0)
    torch.manual_seed(0)
    prepare()
    files = sorted(glob.glob(ROOT + "/*.jpg"))
    model = nn.Sequential(conv(3, 16), conv(16, 24), conv(24, 48), conv(48, 96),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, N_CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    step = 0
    for epoch in range(EPOCHS):
        model.train()
        for x, y in batches(files):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print("epoch", epoch, "step", step, "loss", round(loss.item(), 4), flush=True)


if __name__ == "__main__":
    main()
