# 12-lead ECG rhythm / morphology classifier (multi-label), 100 Hz, 10 s
# data come out of the cart archive as one HDF5 file, appended in export batches
import time

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

SEED = 11
FS = 100
N_LEADS = 12
N_SAMP = 1000
N_REC = 2400
ARCHIVE = "ecg_archive.h5"
LABELS = ["SR", "AFIB", "PVC", "STE", "BRADY"]
BATCH = 32
EPOCHS = 60
LR = 1e-3

np.random.seed(SEED)
torch.manual_seed(SEED)


# ---------------------------------------------------------------- archive
def one_recording(rng):
    y = np.zeros(len(LABELS), dtype=np.float32)
    rate = rng.uniform(60, 95)
    if rng.random() < 0.2:
        y[4] = 1
        rate = rng.uniform(35, 50)
    afib = rng.random() < 0.3
    y[1 if afib else 0] = 1
    y[2] = rng.random() < 0.25
    y[3] = rng.random() < 0.25
    rr = 60.0 / rate
    n_beats = int(10.0 / rr) + 2
    jitter = 0.25 if afib else 0.03
    beats = np.cumsum(rr * (1 + jitter * rng.standard_normal(n_beats)))
    t = np.arange(N_SAMP) / FS
    d = t[None, :] - beats[:, None]
    qrs_w = np.full((n_beats, 1), 0.02)
    qrs_a = np.ones((n_beats, 1))
    if y[2]:
        ect = rng.random(n_beats) < 0.2
        qrs_w[ect] = 0.06
        qrs_a[ect] = -1.6
    qrs = (qrs_a * np.exp(-(d / qrs_w) ** 2)).sum(0)
    p = 0.0 if afib else 0.15 * np.exp(-((d + 0.16) / 0.03) ** 2).sum(0)
    tw = 0.3 * np.exp(-((d - 0.28) / 0.06) ** 2).sum(0)
    st = 0.25 * y[3] * np.exp(-((d - 0.12) / 0.08) ** 2).sum(0)
    basis = np.stack([qrs, p + np.zeros(N_SAMP), tw, st])
    proj = rng.normal(1.0, 0.4, size=(N_LEADS, 4))
    x = proj @ basis + 0.04 * rng.standard_normal((N_LEADS, N_SAMP))
    x += 0.1 * np.sin(2 * np.pi * 0.3 * t + rng.uniform(0, 6))
    return (x * 1000).astype(np.int16), y


def export_archive(path):
    rng = np.random.default_rng(SEED)
    with h5py.File(path, "w") as f:
        sig = f.create_dataset("signal", shape=(N_REC, N_LEADS, N_SAMP), maxshape=(None, N_LEADS, N_SAMP), dtype="i2", compression="gzip", compression_opts=3)
        lab = f.create_dataset("label", shape=(N_REC, len(LABELS)), dtype="f4")
        for a in range(0, N_REC, 600):
            recs = [one_recording(rng) for _ in range(600)]
            sig[a:a + 600] = np.stack([r[0] for r in recs])
            lab[a:a + 600] = np.stack([r[1] for r in recs])


# ---------------------------------------------------------------- data
class ECGArchive(Dataset):
    def __init__(self, path, augment=True):
        self.file = h5py.File(path, "r")
        self.signal = self.file["signal"]
        self.label = self.file["label"][:]
        self.augment = augment

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        x = self.signal[i].astype(np.float32) / 1000.0
        x = x - x.mean(axis=1, keepdims=True)
        if self.augment:
            x = np.roll(x, np.random.randint(N_SAMP), axis=1)
            x = x * np.random.uniform(0.8, 1.2)
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(self.label[i])


# ---------------------------------------------------------------- model
class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv1d(cin, cout, 9, stride=stride, padding=4, bias=False)
        self.b1 = nn.BatchNorm1d(cout)
        self.c2 = nn.Conv1d(cout, cout, 9, padding=4, bias=False)
        self.b2 = nn.BatchNorm1d(cout)
        self.skip = nn.Conv1d(cin, cout, 1, stride=stride)

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x)))
        h = self.b2(self.c2(h))
        return F.relu(h + self.skip(x))


class ResNet1d(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv1d(N_LEADS, width, 15, stride=2, padding=7)
        self.body = nn.Sequential(
            Block(width, width, 2),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, len(LABELS))

    def forward(self, x):
        return self.head(self.body(F.relu(self.stem(x))).mean(-1))


# ---------------------------------------------------------------- run
export_archive(ARCHIVE)

order = np.random.permutation(N_REC)
train_set = Subset(ECGArchive(ARCHIVE), order[:2160].tolist())
val_set = Subset(ECGArchive(ARCHIVE, augment=False), order[2160:].tolist())
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
val_loader = DataLoader(val_set, batch_size=BATCH)

net = ResNet1d()
opt = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)

for epoch in range(EPOCHS):
    t0 = time.time()
    net.train()
    running = 0.0
    for x, y in train_loader:
        opt.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        loss.backward()
        opt.step()
        running += loss.item()
    sched.step()
    net.eval()
    hit = torch.zeros(len(LABELS))
    with torch.no_grad():
        for x, y in val_loader:
            hit += ((net(x) > 0) == (y > 0.5)).float().sum(0)
    acc = hit / len(val_set)
    print("epoch %3d  loss %.4f  %s  (%.1f s)" % (
        epoch, running / len(train_loader),
        " ".join("%s %.3f" % (n, a) for n, a in zip(LABELS, acc.tolist())), time.time() - t0))
    torch.save(net.state_dict(), "ecg_last.pt")
