"""Surface inspection, stage 2: patch classifier for the line cameras."""
import argparse
import io
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torchvision.transforms as T
from PIL import Image
from skimage import data as skdata
from torch.utils.data import DataLoader, Dataset

CLASSES = ("ok", "scratch", "pit", "stain")


class PatchStore:
    """Packs JPEG patches in one binary blob plus an index, as delivered by the line."""

    def __init__(self, folder, count, side, seed):
        self.folder, self.count, self.side, self.seed = folder, count, side, seed
        self.blob = os.path.join(folder, "patches.bin")
        self.index = os.path.join(folder, "index.npy")

    def ensure(self):
        if os.path.exists(self.index):
            return self
        os.makedirs(self.folder, exist_ok=True)
        rng = np.random.default_rng(self.seed)
        textures = [skdata.brick(), skdata.grass(), skdata.gravel()]
        rows, offset = [], 0
        with open(self.blob, "wb") as out:
            for i in range(self.count):
                base = textures[rng.integers(3)]
                r, c = rng.integers(0, 512 - self.side, 2)
                patch = base[r:r + self.side, c:c + self.side].astype(np.float32)
                label = int(rng.integers(len(CLASSES)))
                y, x = rng.integers(20, self.side - 60, 2)
                if label == 1:
                    for t in range(50):
                        patch[y + t // 2:y + t // 2 + 3, x + t] = 250
                elif label == 2:
                    patch[y:y + 16, x:x + 16] *= 0.15
                elif label == 3:
                    patch[y:y + 40, x:x + 40] = patch[y:y + 40, x:x + 40] * 0.5 + 110
                rgb = np.repeat(np.clip(patch, 0, 255).astype(np.uint8)[..., None], 3, axis=2)
                buf = io.BytesIO()
                Image.fromarray(rgb).save(buf, "JPEG", quality=90)
                out.write(buf.getvalue())
                rows.append((offset, len(buf.getvalue()), label))
                offset += len(buf.getvalue())
        np.save(self.index, np.array(rows, dtype=np.int64))
        return self


class PatchDataset(Dataset):
    def __init__(self, store, size):
        self.index = np.load(store.index)
        self.path = store.blob
        self._fh = None
        self.tf = T.Compose([
            T.RandomResizedCrop(size, scale=(0.7, 1.0)),
            T.RandomHorizontalFlip(),
            T.RandomVerticalFlip(),
            T.ToTensor(),
            T.Normalize([0.45] * 3, [0.25] * 3),
        ])

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        if self._fh is None:
            self._fh = open(self.path, "rb")
        offset, size, label = self.index[i]
        self._fh.seek(offset)
        with Image.open(io.BytesIO(self._fh.read(size))) as im:
            x = self.tf(im.convert("RGB"))
        return x, int(label)


def conv_bn(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class InspectionNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(conv_bn(3, 24, 2), conv_bn(24, 32, 2), conv_bn(32, 64, 2),
                                      conv_bn(64, 96, 2), conv_bn(96, 128, 1))
        self.head = nn.Linear(128, classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


class InspectionJob:
    def __init__(self, opts):
        self.opts = opts
        torch.manual_seed(opts.seed)
        folder = os.path.join(tempfile.gettempdir(), "surface_inspection")
        store = PatchStore(folder, opts.patches, 160, opts.seed).ensure()
        self.train_set = PatchDataset(store, opts.size)
        self.loader = DataLoader(
            self.train_set,
            batch_size=opts.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=opts.workers,
            prefetch_factor=4,
            multiprocessing_context="spawn",
        )
        self.net = InspectionNet(len(CLASSES))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=opts.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, opts.epochs)
        self.crit = nn.CrossEntropyLoss()
        self.seen = 0
        self.best = float("inf")

    def one_epoch(self, epoch):
        self.net.train()
        total, right, n = 0.0, 0, 0
        for x, y in self.loader:
            out = self.net(x)
            loss = self.crit(out, y)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            total += loss.item() * len(y)
            right += (out.argmax(1) == y).sum().item()
            n += len(y)
        self.seen += n
        self.sched.step()
        return total / n, right / n

    def checkpoint(self, loss):
        if loss < self.best:
            self.best = loss
            torch.save(self.net.state_dict(), os.path.join(tempfile.gettempdir(), "surface_inspection", "best.pt"))

    def run(self):
        start = time.time()
        for epoch in range(self.opts.epochs):
            loss, acc = self.one_epoch(epoch)
            self.checkpoint(loss)
            print(f"[{epoch:04d}] loss {loss:.4f} acc {acc:.3f} patches/s {self.seen / (time.time() - start):.1f}",
                  flush=True)


def get_options():
    p = argparse.ArgumentParser()
    p.add_argument("--patches", type=int, default=800)
    p.add_argument("--size", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=600)
    p.add_argument("--lr", type=float, default=0.03)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


if __name__ == "__main__":
    InspectionJob(get_options()).run()
