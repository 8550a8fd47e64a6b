"""
Mechanism-of-action classifier for our cell painting plates (chapter 4).
The plates are one big zip on the group share, so we just read from it.
"""
import io
import multiprocessing as mp
import os
import sys
import tempfile
import time
import zipfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

WORKDIR = os.path.join(tempfile.gettempdir(), "moa_zip")
ZIP = os.path.join(WORKDIR, "plates.zip")
N_WELLS, SITES, SIZE, N_MOA = 96, 8, 80, 6
SEED = 1234


def make_plates():
    if os.path.exists(ZIP):
        return
    os.makedirs(WORKDIR, exist_ok=True)
    rng = np.random.default_rng(SEED)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    with zipfile.ZipFile(ZIP + ".tmp", "w", zipfile.ZIP_DEFLATED, compresslevel=4) as zf:
        for well in range(N_WELLS):
            moa = well % N_MOA
            for site in range(SITES):
                img = rng.gamma(4.0, 40.0, size=(3, SIZE, SIZE))
                for _ in range(rng.integers(5, 12) - (moa == 3) * 3):
                    cy, cx = rng.uniform(6, SIZE - 6, 2)
                    r = rng.normal(6 + 1.2 * (moa == 1) - 1.2 * (moa == 2), 0.8)
                    stretch = 1.8 if moa == 4 else 1.1
                    d = np.sqrt(((yy - cy) / stretch) ** 2 + (xx - cx) ** 2)
                    img[0] += 2200 * np.exp(-(d / r) ** 4)
                    img[1] += (1300 + 500 * (moa == 5)) * np.exp(-(d / (1.7 * r)) ** 2)
                    img[2] += 900 * np.exp(-((d - 1.5 * r) / 2.0) ** 2)
                buf = io.BytesIO()
                np.save(buf, np.minimum(img, 65535).astype(np.uint16))
                zf.writestr(f"P1/w{well:02d}_s{site}_moa{moa}.npy", buf.getvalue())
    os.rename(ZIP + ".tmp", ZIP)


class ShareFile(io.RawIOBase):
    """Stands in for the SMB mount when working from home: one round trip per request."""

    def __init__(self, path, rtt=0.010):
        self.fd = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.fd).st_size
        self.pos = 0
        self.rtt = rtt

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, pos, whence=0):
        self.pos = pos + (0, self.pos, self.size)[whence]
        return self.pos

    def tell(self):
        return self.pos

    def readinto(self, b):
        time.sleep(self.rtt)
        n = os.preadv(self.fd, [b], self.pos)
        self.pos += n
        return n


def open_plates():
    return zipfile.ZipFile(io.BufferedReader(ShareFile(ZIP), 1 << 17))


class Plates(Dataset):
    def __init__(self):
        self.zf = open_plates()
        self.mutex = mp.Lock()
        self.names = sorted(self.zf.namelist())
        self.y = [int(n.rsplit("moa", 1)[1][:-4]) for n in self.names]

    def __len__(self):
        return len(self.names)

    def fetch(self, name):
        with self.mutex:
            return np.load(io.BytesIO(self.zf.read(name)))

    def __getitem__(self, i):
        a = self.fetch(self.names[i]).astype(np.float32)
        a = np.log1p(a) - 5.5
        if np.random.rand() < 0.5:
            a = a[:, :, ::-1]
        if np.random.rand() < 0.5:
            a = a[:, ::-1, :]
        return torch.from_numpy(a.copy()), self.y[i]


class ResBlock(nn.Module):
    def __init__(self, ci, co, stride):
        super().__init__()
        self.c1 = nn.Conv2d(ci, co, 3, stride, 1, bias=False)
        self.c2 = nn.Conv2d(co, co, 3, 1, 1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(co), nn.BatchNorm2d(co)
        self.skip = nn.Conv2d(ci, co, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(h)) + self.skip(x))


net_cfg = [(16, 24, 2), (24, 48, 2), (48, 96, 2)]


def build_net():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *[ResBlock(*c) for c in net_cfg],
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(96, N_MOA))


def main():
    torch.manual_seed(SEED)
    make_plates()
    data = Plates()
    train, test = random_split(data, [len(data) - 64, 64], torch.Generator().manual_seed(0))
    dl = DataLoader(train, 16, shuffle=True, num_workers=4, drop_last=True, persistent_workers=True,
                    generator=torch.Generator().manual_seed(SEED))
    test_x = torch.stack([data[i][0] for i in test.indices])
    test_y = torch.tensor([data.y[i] for i in test.indices])

    net = build_net()
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.08, total_steps=80 * len(dl))
    start = time.time()
    it = 0
    history = []
    for epoch in range(80):
        net.train()
        for x, y in dl:
            loss = F.cross_entropy(net(x), y, label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            history.append(loss.item())
            it += 1
            if it % 10 == 0:
                sys.stdout.write("it %5d  loss %.4f  lr %.4f  t %.1f\n" % (
                    it, np.mean(history[-10:]), sched.get_last_lr()[0], time.time() - start))
                sys.stdout.flush()
        net.eval()
        with torch.no_grad():
            acc = (net(test_x).argmax(1) == test_y).float().mean().item()
        print("== epoch", epoch, "test acc %.3f" % acc)
        torch.save(net.state_dict(), os.path.join(WORKDIR, "last.pt"))


if __name__ == "__main__":
    main()
