# Baseline: which of 4 scenes was photographed + how strong is the blur (multi-task)
# v3 - shufflenet, 128px, flips + colour jitter.  CV later
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from PIL import Image, ImageFilter
from skimage import data as skdata
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.models import shufflenet_v2_x0_5


class CFG:
    root = Path(tempfile.gettempdir()) / "photo_quality_baseline"
    n_images = 96
    full = (1400, 1050)
    size = 144
    crop = 128
    bs = 8
    workers = 1
    epochs = 2000
    lr = 2e-3
    seed = 2023
    scenes = ["astronaut", "coffee", "chelsea", "rocket"]
    mean = [0.485, 0.456, 0.406]
    std = [0.229, 0.224, 0.225]


def set_seed(s):
    random.seed(s)
    os.environ["PYTHONHASHSEED"] = str(s)
    np.random.seed(s)
    torch.manual_seed(s)


def prepare():
    csv = CFG.root / "train.csv"
    if csv.exists():
        return pd.read_csv(csv)
    (CFG.root / "train").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(CFG.seed)
    sources = [Image.fromarray(getattr(skdata, n)()) for n in CFG.scenes]
    grain = Image.fromarray(rng.integers(96, 160, (CFG.full[1], CFG.full[0], 3), dtype=np.uint8))
    rows = []
    for i in range(CFG.n_images):
        label = i % len(sources)
        src = sources[label]
        w = int(rng.uniform(0.55, 0.95) * min(src.width, src.height * 4 / 3))
        h = w * 3 // 4
        x, y = rng.integers(0, src.width - w + 1), rng.integers(0, src.height - h + 1)
        im = src.crop((x, y, x + w, y + h))
        blur = float(rng.uniform(0, 3))
        im = im.filter(ImageFilter.GaussianBlur(blur)).resize(CFG.full, Image.BILINEAR)
        im = Image.blend(im, grain, 0.12)
        name = f"{i:05d}.jpg"
        im.save(CFG.root / "train" / name, quality=90)
        rows.append({"file": name, "scene": label, "blur": round(blur / 3, 4)})
    df = pd.DataFrame(rows)
    df.to_csv(csv, index=False)
    return df


class PhotoDataset(Dataset):
    def __init__(self, df, train=True):
        self.files = [CFG.root / "train" / f for f in df.file]
        self.scene = df.scene.values
        self.blur = df.blur.values.astype("float32")
        if train:
            aug = [T.RandomCrop(CFG.crop), T.RandomHorizontalFlip(), T.ColorJitter(0.2, 0.2)]
        else:
            aug = [T.CenterCrop(CFG.crop)]
        self.tf = T.Compose(aug + [T.ToTensor(), T.Normalize(CFG.mean, CFG.std)])

    def load(self, path):
        img = Image.open(path).convert("RGB")
        return img.resize((CFG.size, CFG.size), Image.BICUBIC)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        img = self.load(self.files[idx])
        return self.tf(img), self.scene[idx], self.blur[idx]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = shufflenet_v2_x0_5(weights=None)
        n = self.backbone.fc.in_features
        self.backbone.fc = nn.Identity()
        self.drop = nn.Dropout(0.2)
        self.scene = nn.Linear(n, len(CFG.scenes))
        self.blur = nn.Linear(n, 1)

    def forward(self, x):
        f = self.drop(self.backbone(x))
        return self.scene(f), self.blur(f).squeeze(1)


def valid_fn(model, loader):
    model.eval()
    hit, err, n = 0, 0.0, 0
    with torch.no_grad():
        for x, s, b in loader:
            ps, pb = model(x)
            hit += (ps.argmax(1) == s).sum().item()
            err += (pb - b).abs().sum().item()
            n += len(s)
    return hit / n, err / n


def main():
    set_seed(CFG.seed)
    df = prepare().sample(frac=1.0, random_state=CFG.seed).reset_index(drop=True)
    n_val = 16
    va, tr = df[:n_val], df[n_val:]
    train_dl = DataLoader(PhotoDataset(tr), batch_size=CFG.bs, shuffle=True, drop_last=True,
                          num_workers=CFG.workers, persistent_workers=True)
    valid_dl = DataLoader(PhotoDataset(va, train=False), batch_size=CFG.bs)

    model = Net()
    opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-2)
    sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=CFG.epochs * len(train_dl))
    ce, l1 = nn.CrossEntropyLoss(label_smoothing=0.05), nn.SmoothL1Loss()

    t0 = time.time()
    for ep in range(CFG.epochs):
        model.train()
        losses = []
        for x, s, b in train_dl:
            ps, pb = model(x)
            loss = ce(ps, s) + 2.0 * l1(pb, b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sch.step()
            losses.append(loss.item())
        line = f"ep {ep:03d} | train {np.mean(losses):.4f} | {time.time() - t0:.0f}s"
        if (ep + 1) % 20 == 0:
            acc, mae = valid_fn(model, valid_dl)
            line += f" | acc {acc:.3f} | blur mae {mae:.4f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
