# %% [markdown]
# IHC stain score (0..3) from small patches -- notebook exported to .py
# %%
import os, gc, time, math, random, tempfile, warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
from skimage import color, data as skdata

warnings.filterwarnings("ignore")


class CFG:
    seed = 2021
    folder = os.path.join(tempfile.gettempdir(), "ihc_patches")
    n_slides = 120
    side = 512
    crop = 112
    crops_per_slide = 6
    bs = 8
    epochs = 60
    lr = 1e-3
    num_workers = 2
    print_freq = 10
    n_valid = 16


def seed_everything(seed=42):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


# %% build the slides once
def build_slides():
    fn = os.path.join(CFG.folder, "slides.npy")
    if os.path.exists(fn):
        return
    os.makedirs(CFG.folder, exist_ok=True)
    rng = np.random.default_rng(CFG.seed)
    base = color.rgb2hed(skdata.immunohistochemistry()).astype(np.float32)
    slides = np.empty((CFG.n_slides, CFG.side, CFG.side, 3), np.uint8)
    score = np.arange(CFG.n_slides) % 4
    for i in range(CFG.n_slides):
        hed = np.roll(base, rng.integers(0, CFG.side, 2), (0, 1))
        if rng.random() < 0.5:
            hed = hed.transpose(1, 0, 2)
        gain = np.array([rng.normal(1.0, 0.06), 1.0, 0.25 + 0.4 * score[i] + rng.normal(0, 0.05)], np.float32)
        slides[i] = (color.hed2rgb(hed * gain) * 255).astype(np.uint8)
    np.save(os.path.join(CFG.folder, "score.npy"), score)
    np.save(fn + ".tmp.npy", slides)
    os.rename(fn + ".tmp.npy", fn)


# %% augmentations
def stain_jitter(img, rng):
    hed = color.rgb2hed(img)
    hed *= 1 + rng.uniform(-0.06, 0.06, 3)
    hed += rng.uniform(-0.004, 0.004, 3)
    return color.hed2rgb(hed).astype(np.float32)


def exposure_gamma(img, rng):
    return np.power(img, rng.uniform(0.85, 1.2))


def sensor_noise(img, rng):
    return np.clip(img + rng.normal(0, 0.015, img.shape), 0, 1)


def dihedral(img, rng):
    k = rng.integers(8)
    img = np.rot90(img, k % 4)
    return img[:, ::-1] if k >= 4 else img


def random_crop(img, rng):
    h, w = img.shape[:2]
    i, j = rng.integers(h - CFG.crop + 1), rng.integers(w - CFG.crop + 1)
    return img[i:i + CFG.crop, j:j + CFG.crop]


class SlideDataset(Dataset):
    def __init__(self, ids, train=True):
        self.slides = np.load(os.path.join(CFG.folder, "slides.npy"), mmap_mode="r")
        self.score = np.load(os.path.join(CFG.folder, "score.npy"))
        self.ids = ids
        self.train = train

    def __len__(self):
        return len(self.ids) * CFG.crops_per_slide

    def __getitem__(self, k):
        i = self.ids[k // CFG.crops_per_slide]
        if not self.train:
            rng = np.random.default_rng(k)
            img = random_crop(self.slides[i], rng) / 255.0
        else:
            rng = np.random.default_rng(torch.randint(2 ** 31, (1,)).item())
            img = np.asarray(self.slides[i])
            img = stain_jitter(img, rng)
            img = exposure_gamma(img, rng)
            img = sensor_noise(img, rng)
            img = dihedral(img, rng)
            img = random_crop(img, rng)
        x = np.ascontiguousarray(img.transpose(2, 0, 1), dtype=np.float32)
        return torch.from_numpy(x) * 2 - 1, int(self.score[i])


# %% model
class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(c, c // 4), nn.ReLU(), nn.Linear(c // 4, c), nn.Sigmoid())

    def forward(self, x):
        return x * self.fc(x.mean((2, 3)))[:, :, None, None]


def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class PatchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(conv_bn(3, 24, 2), conv_bn(24, 48), SE(48), conv_bn(48, 72, 2), SE(72),
                               conv_bn(72, 96, 2), SE(96))
        self.out = nn.Linear(96, 4)

    def forward(self, x):
        return self.out(F.adaptive_avg_pool2d(self.f(x), 1).flatten(1))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def as_minutes(s):
    return "%dm %ds" % (math.floor(s / 60), s % 60)


# %% train
def train_fn(loader, model, optimizer, scheduler, epoch, t0):
    model.train()
    meter = AverageMeter()
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1000)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        meter.update(loss.item(), len(y))
        if step % CFG.print_freq == 0:
            print(f"Epoch: [{epoch + 1}][{step}/{len(loader)}] Elapsed {as_minutes(time.time() - t0)} "
                  f"Loss: {loss.item():.4f}({meter.avg:.4f}) Grad: {grad_norm:.4f}", flush=True)
    return meter.avg


@torch.no_grad()
def valid_fn(loader, model):
    model.eval()
    hits = [(model(x).argmax(1) == y).float().mean().item() for x, y in loader]
    return float(np.mean(hits))


if __name__ == "__main__":
    seed_everything(CFG.seed)
    build_slides()
    ids = np.random.permutation(CFG.n_slides)
    train_loader = DataLoader(SlideDataset(ids[CFG.n_valid:]), batch_size=CFG.bs, shuffle=True, drop_last=True,
                              num_workers=CFG.num_workers, persistent_workers=True)
    valid_loader = DataLoader(SlideDataset(ids[:CFG.n_valid], train=False), batch_size=32)
    model = PatchNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CFG.epochs * len(train_loader))
    best, t0 = 0, time.time()
    for epoch in range(CFG.epochs):
        avg = train_fn(train_loader, model, optimizer, scheduler, epoch, t0)
        acc = valid_fn(valid_loader, model)
        print(f"Epoch {epoch + 1} - avg_train_loss: {avg:.4f} acc: {acc:.4f}", flush=True)
        if acc > best:
            best = acc
            torch.save(model.state_dict(), os.path.join(CFG.folder, "best.pth"))
        gc.collect()
