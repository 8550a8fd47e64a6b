"""Which photograph does this crop come from? JPEG crops are kept in one HDF5 archive."""
import io
import json
import os
import time

import h5py
import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from skimage import data
from torch.utils.data import DataLoader, Dataset

ARCHIVE = "crops_archive.h5"
NOTES = "crops_archive_notes.json"
N_TRAIN = 400          # the labelled part
SIDE = 64


def build_archive():
    if os.path.exists(ARCHIVE) and os.path.exists(NOTES):
        return
    rng = np.random.default_rng(0)
    photos = [data.astronaut(), data.coffee(), data.chelsea()]
    with h5py.File(ARCHIVE, "w") as f:
        store = f.create_dataset("jpeg", (N_TRAIN,), dtype=h5py.vlen_dtype(np.uint8))
        for i in range(N_TRAIN):
            img = photos[i % 3]
            y = rng.integers(img.shape[0] - 240)
            x = rng.integers(img.shape[1] - 240)
            buf = io.BytesIO()
            Image.fromarray(img[y:y + 240, x:x + 240]).save(buf, "JPEG", quality=90)
            store[i] = np.frombuffer(buf.getvalue(), np.uint8)
    # notes cover the whole collection, most of it not labelled yet
    notes = {f"crop{i:06d}": {"label": i % 3, "source": f"roll{i % 97}", "year": 1990 + i % 30, "checked": i < N_TRAIN}
             for i in range(150_000)}
    with open(NOTES, "w") as f:
        json.dump(notes, f)


class Crops(Dataset):
    def __init__(self):
        self.jpeg = None
        self.notes = None

    def __len__(self):
        return N_TRAIN

    def _open(self):
        # an HDF5 handle must not cross a fork, so everything is opened at the first use
        self.jpeg = h5py.File(ARCHIVE, "r")["jpeg"]
        with open(NOTES) as f:
            self.notes = json.load(f)

    def __getitem__(self, i):
        if self.jpeg is None:
            self._open()
        img = Image.open(io.BytesIO(self.jpeg[i].tobytes())).convert("RGB")
        side = int(torch.randint(120, 241, (1,)))
        left = int(torch.randint(0, 241 - side, (1,)))
        top = int(torch.randint(0, 241 - side, (1,)))
        img = img.resize((SIDE, SIDE), Image.BILINEAR, box=(left, top, left + side, top + side))
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1)
        return x, self.notes[f"crop{i:06d}"]["label"]


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=2, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


def main():
    build_archive()
    torch.manual_seed(0)
    loader = DataLoader(Crops(), batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(conv(3, 16), conv(16, 32), conv(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    t0, step = time.time(), 0
    for epoch in range(1000):
        for x, y in loader:
            out = model(x.float().div_(255))
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 30 == 0:
                acc = (out.argmax(1) == y).float().mean().item()
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} acc {acc:.2f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
