# White-matter lesion segmentation on FLAIR, 2.5D U-Net (3 neighbouring slices in, 1 mask out)
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

ROOT = Path("flair_cohort")
N_SUBJ = 14
SHAPE = (96, 96, 32)
N_VAL = 2
BATCH = 8
MAX_ITER = 20000
BASE_LR = 2e-3

torch.manual_seed(3)
rng = np.random.default_rng(3)


def make_subject(k):
    brain = ndimage.gaussian_filter(rng.standard_normal(SHAPE), 5)
    brain = 300 + 900 * brain / np.abs(brain).max()
    mask = np.zeros(SHAPE, np.uint8)
    grid = np.stack(np.meshgrid(*[np.arange(s) for s in SHAPE], indexing="ij"), -1)
    for _ in range(rng.integers(6, 14)):
        c = np.array([rng.uniform(0.15 * s, 0.85 * s) for s in SHAPE])
        r = rng.uniform(2.0, 6.0)
        mask |= ((((grid - c) / (r, r, 0.6 * r)) ** 2).sum(-1) < 1).astype(np.uint8)
    vol = brain + mask * rng.uniform(120, 260) + 40 * rng.standard_normal(SHAPE)
    d = ROOT / ("sub-%02d" % k)
    d.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(vol.astype(np.int16), np.eye(4)), str(d / "flair.nii.gz"))
    nib.save(nib.Nifti1Image(mask, np.eye(4)), str(d / "lesion.nii.gz"))


def load_subject(d):
    v = nib.load(str(d / "flair.nii.gz")).get_fdata(dtype=np.float32)
    m = nib.load(str(d / "lesion.nii.gz")).get_fdata(dtype=np.float32)
    lo, hi = np.percentile(v, [1, 99])
    v = np.clip((v - lo) / (hi - lo), 0, 1)
    # slices first
    return np.ascontiguousarray(v.transpose(2, 0, 1)), np.ascontiguousarray(m.transpose(2, 0, 1))


class SliceSet(Dataset):
    def __init__(self, dirs, train):
        self.vols = [load_subject(d) for d in dirs]
        self.index = [(s, z) for s, (v, _) in enumerate(self.vols) for z in range(1, len(v) - 1)]
        self.train = train

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        s, z = self.index[i]
        v, m = self.vols[s]
        x, y = v[z - 1:z + 2], m[z:z + 1]
        if self.train:
            if np.random.rand() < 0.5:
                x, y = x[:, ::-1], y[:, ::-1]
            if np.random.rand() < 0.5:
                x, y = x[:, :, ::-1], y[:, :, ::-1]
            k = np.random.randint(4)
            x, y = np.rot90(x, k, (1, 2)), np.rot90(y, k, (1, 2))
            x = x ** np.random.uniform(0.7, 1.4)
            x = x + 0.02 * np.random.randn(*x.shape)
        return torch.tensor(x.copy(), dtype=torch.float32), torch.tensor(y.copy(), dtype=torch.float32)


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1, inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1, inplace=True))


class UNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.d1, self.d2, self.d3 = double_conv(3, c), double_conv(c, 2 * c), double_conv(2 * c, 4 * c)
        self.u2, self.u1 = double_conv(6 * c, 2 * c), double_conv(3 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        z = self.d3(F.max_pool2d(b, 2))
        z = self.u2(torch.cat([F.interpolate(z, scale_factor=2), b], 1))
        z = self.u1(torch.cat([F.interpolate(z, scale_factor=2), a], 1))
        return self.out(z)


def dice_bce(logit, y):
    p = torch.sigmoid(logit)
    inter = (p * y).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)
    return dice.mean() + F.binary_cross_entropy_with_logits(logit, y)


def lesion_report(model, ds):
    """Dice and number of detected lesions per subject, components under 5 voxels dropped"""
    model.eval()
    for s, (v, m) in enumerate(ds.vols):
        x = torch.from_numpy(np.stack([v[z - 1:z + 2] for z in range(1, len(v) - 1)]))
        with torch.no_grad():
            pred = torch.cat([model(b) for b in x.split(10)])[:, 0].numpy() > 0
        lab, n = ndimage.label(pred)
        size = ndimage.sum(pred, lab, range(1, n + 1))
        pred = np.isin(lab, 1 + np.flatnonzero(np.asarray(size) >= 5))
        ref = m[1:-1] > 0
        print("   val subj %d: dice %.3f, lesions %d / %d" % (
            s, 2 * (pred & ref).sum() / max(1, pred.sum() + ref.sum()),
            (np.asarray(size) >= 5).sum(), ndimage.label(ref)[1]))
    model.train()


for k in range(N_SUBJ):
    make_subject(k)
subjects = sorted(ROOT.glob("sub-*"))
train = SliceSet(subjects[:-N_VAL], True)
val = SliceSet(subjects[-N_VAL:], False)
np.random.seed(3)
loader = DataLoader(train, BATCH, shuffle=True, drop_last=True, num_workers=0)

model = UNet()
optim = torch.optim.SGD(model.parameters(), lr=BASE_LR * 5, momentum=0.95, nesterov=True, weight_decay=1e-5)
it = 0
while it < MAX_ITER:
    for x, y in loader:
        for g in optim.param_groups:
            g["lr"] = BASE_LR * 5 * (1 - it / MAX_ITER) ** 0.9
        loss = dice_bce(model(x), y)
        optim.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optim.step()
        it += 1
        if it % 10 == 0:
            print("iter %5d  loss %.4f" % (it, loss.item()), flush=True)
        if it % 300 == 0:
            lesion_report(model, val)
            torch.save({"it": it, "model": model.state_dict(), "optim": optim.state_dict()}, "unet.ckpt")
