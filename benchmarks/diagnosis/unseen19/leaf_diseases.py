# Leaf disease classification (healthy / rust / scab / multiple) - baseline, fold 0 and friends
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import timm
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


class CFG:
    data_dir = Path(tempfile.gettempdir()) / "leaf_diseases_aa"
    out_dir = data_dir / "output"
    model_name = "mobilenetv3_small_100"
    classes = ["healthy", "multiple_diseases", "rust", "scab"]
    img_size = 160
    n_images = 240
    n_folds = 5
    trn_folds = [0, 1]
    epochs = 30
    batch_size = 16
    num_workers = 2
    lr = 1e-3
    weight_decay = 1e-4
    mixup_alpha = 0.4
    mixup_prob = 0.5
    smoothing = 0.05
    ema_decay = 0.99
    print_freq = 5
    seed = 42


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


# ---------------------------------------------------------------- data
def make_photo(rng, label):
    """a leaf on a blurry background, camera resolution"""
    w, h = 2048, 1365
    noise = Image.fromarray(rng.integers(40, 140, (h // 16, w // 16, 3), dtype=np.uint8))
    img = noise.resize((w, h), Image.BILINEAR)
    grain = rng.integers(0, 25, (h // 2, w // 2, 3), dtype=np.uint8)
    img = Image.blend(img, Image.fromarray(grain).resize((w, h)), 0.2)
    d = ImageDraw.Draw(img)
    cx, cy = rng.integers(800, 1250), rng.integers(550, 800)
    rx, ry = rng.integers(500, 780), rng.integers(280, 480)
    d.ellipse([cx - rx, cy - ry, cx + rx, cy + ry], fill=(40, int(rng.integers(110, 160)), 45))
    spots = {"healthy": [], "rust": ["r"], "scab": ["s"], "multiple_diseases": ["r", "s"]}[label]
    for kind in spots:
        color = (190, 120, 30) if kind == "r" else (60, 60, 40)
        for _ in range(rng.integers(12, 30)):
            x, y = cx + rng.normal(0, rx / 3), cy + rng.normal(0, ry / 3)
            r = rng.integers(12, 40)
            d.ellipse([x - r, y - r, x + r, y + r], fill=color)
    return img


def prepare_data():
    csv = CFG.data_dir / "train.csv"
    if csv.exists():
        return pd.read_csv(csv)
    (CFG.data_dir / "images").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = []
    for i in range(CFG.n_images):
        label = CFG.classes[i % 4]
        make_photo(rng, label).save(CFG.data_dir / "images" / f"Train_{i}.jpg", quality=90)
        rows.append({"image_id": f"Train_{i}", "label": label, "fold": (i // 4) % CFG.n_folds})
    df = pd.DataFrame(rows)
    df.to_csv(csv, index=False)
    return df


class LeafDataset(Dataset):
    def __init__(self, df, transform):
        self.df = df.reset_index(drop=True)
        self.transform = transform

    def __len__(self):
        return len(self.df)

    def __getitem__(self, idx):
        row = self.df.loc[idx]
        path = CFG.data_dir / "images" / f"{row['image_id']}.jpg"
        image = Image.open(path)
        image = image.convert("RGB")
        image = self.transform(image)
        return image, CFG.classes.index(row["label"])


def get_transforms(train):
    norm = [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    if train:
        return T.Compose([
            T.Resize((CFG.img_size + 32, CFG.img_size + 32)),
            T.RandomCrop(CFG.img_size),
            T.RandomHorizontalFlip(),
            T.RandomVerticalFlip(),
            T.RandomRotation(20),
            T.ColorJitter(0.2, 0.2),
        ] + norm)
    return T.Compose([T.Resize((CFG.img_size, CFG.img_size))] + norm)


# ---------------------------------------------------------------- training
class ModelEMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            if v.dtype.is_floating_point:
                self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)
            else:
                self.shadow[k].copy_(v)


def mixup(x, y):
    lam = np.random.beta(CFG.mixup_alpha, CFG.mixup_alpha)
    perm = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


def train_one_epoch(model, ema, loader, optimizer, scheduler, epoch):
    model.train()
    losses = AverageMeter()
    start = time.time()
    for step, (x, y) in enumerate(loader):
        if random.random() < CFG.mixup_prob:
            x, ya, yb, lam = mixup(x, y)
            out = model(x)
            loss = lam * F.cross_entropy(out, ya, label_smoothing=CFG.smoothing) \
                + (1 - lam) * F.cross_entropy(out, yb, label_smoothing=CFG.smoothing)
        else:
            loss = F.cross_entropy(model(x), y, label_smoothing=CFG.smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update(model)
        losses.update(loss.item(), x.size(0))
        if step % CFG.print_freq == 0:
            print(f"epoch {epoch} [{step}/{len(loader)}] loss {losses.avg:.4f} "
                  f"lr {scheduler.get_last_lr()[0]:.2e} {time.time() - start:.1f}s", flush=True)
    return losses.avg


@torch.no_grad()
def valid(model, loader):
    model.eval()
    preds, targets = [], []
    for x, y in loader:
        preds.append(model(x).softmax(1))
        targets.append(y)
    preds, targets = torch.cat(preds), torch.cat(targets)
    return preds.numpy(), (preds.argmax(1) == targets).float().mean().item()


def run_fold(df, fold, oof):
    print(f"========== fold {fold} ==========")
    trn, val = df[df.fold != fold], df[df.fold == fold]
    train_loader = DataLoader(LeafDataset(trn, get_transforms(True)), batch_size=CFG.batch_size, shuffle=True,
                              num_workers=CFG.num_workers, drop_last=True)
    valid_loader = DataLoader(LeafDataset(val, get_transforms(False)), batch_size=CFG.batch_size * 2,
                              num_workers=CFG.num_workers)
    model = timm.create_model(CFG.model_name, pretrained=False, num_classes=len(CFG.classes))
    ema = ModelEMA(model, CFG.ema_decay)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.weight_decay)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, CFG.lr, total_steps=CFG.epochs * len(train_loader))
    best = -1.0
    for epoch in range(CFG.epochs):
        loss = train_one_epoch(model, ema, train_loader, optimizer, scheduler, epoch)
        preds, acc = valid(model, valid_loader)
        print(f"fold {fold} epoch {epoch}: train loss {loss:.4f} valid acc {acc:.4f}", flush=True)
        if acc > best:
            best = acc
            oof[val.index] = preds
            torch.save(ema.shadow, CFG.out_dir / f"{CFG.model_name}_fold{fold}.pth")


def main():
    seed_everything(CFG.seed)
    df = prepare_data()
    CFG.out_dir.mkdir(exist_ok=True)
    oof = np.zeros((len(df), len(CFG.classes)), dtype=np.float32)
    for fold in CFG.trn_folds:
        run_fold(df, fold, oof)
    used = df.fold.isin(CFG.trn_folds)
    y = df.label.map(CFG.classes.index)
    print("OOF accuracy:", (oof.argmax(1) == y)[used].mean())


if __name__ == "__main__":
    main()
