"""Crop-yield regression from multispectral tiles; field attributes come from an Arrow table."""
import os
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CFG = dict(
    folder=os.environ.get("TILES", os.path.join(tempfile.gettempdir(), "tile_yield")),
    n_tiles=3000, n_fields=120_000, bands=6, px=32,
    batch=32, workers=0, lr=3e-4, steps=20_000, log_every=10,
)


def build(cfg):
    os.makedirs(cfg["folder"], exist_ok=True)
    rng = np.random.default_rng(11)
    table_path = os.path.join(cfg["folder"], "fields.parquet")
    if os.path.exists(table_path):
        return
    ids = np.array([f"UTM{z:02d}-{k:07d}" for k, z in enumerate(rng.integers(28, 38, cfg["n_fields"]))])
    rng.shuffle(ids)
    tiles = rng.normal(size=(cfg["n_tiles"], cfg["bands"], cfg["px"], cfg["px"])).astype(np.float16)
    np.save(os.path.join(cfg["folder"], "tiles.npy"), tiles)
    np.save(os.path.join(cfg["folder"], "tile_ids.npy"), rng.choice(ids, cfg["n_tiles"], replace=False))
    pq.write_table(pa.table({
        "field_id": ids,
        "rain": rng.gamma(2, 200, len(ids)).astype(np.float32),
        "nitrogen": rng.uniform(0, 200, len(ids)).astype(np.float32),
        "slope": rng.exponential(3, len(ids)).astype(np.float32),
        "yield_t": rng.normal(7, 2, len(ids)).astype(np.float32),
    }), table_path)


class TileDataset(Dataset):
    attrs = ("rain", "nitrogen", "slope")

    def __init__(self, cfg):
        self.tiles = np.load(os.path.join(cfg["folder"], "tiles.npy"), mmap_mode="r")
        self.ids = np.load(os.path.join(cfg["folder"], "tile_ids.npy"))
        self.table = pq.read_table(os.path.join(cfg["folder"], "fields.parquet"))
        self.mean = {a: pc.mean(self.table[a]).as_py() for a in self.attrs}
        self.std = {a: pc.stddev(self.table[a]).as_py() for a in self.attrs}

    def field(self, field_id):
        return self.table.filter(pc.equal(self.table["field_id"], field_id)).to_pylist()[0]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        row = self.field(str(self.ids[i]))
        x = torch.from_numpy(self.tiles[i].astype(np.float32))
        a = torch.tensor([(row[k] - self.mean[k]) / self.std[k] for k in self.attrs])
        return x, a, torch.tensor(row["yield_t"])


class YieldNet(nn.Module):
    def __init__(self, bands):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(bands, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.mlp = nn.Sequential(nn.Linear(35, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x, a):
        return self.mlp(torch.cat([self.cnn(x), a], 1)).squeeze(1)


def forever(loader):
    while True:
        yield from loader


def run(cfg):
    torch.manual_seed(1)
    build(cfg)
    loader = DataLoader(TileDataset(cfg), batch_size=cfg["batch"], shuffle=True,
                        num_workers=cfg["workers"], drop_last=True)
    model = YieldNet(cfg["bands"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    t, avg = time.time(), None
    for step, (x, a, y) in enumerate(forever(loader), 1):
        loss = nn.functional.smooth_l1_loss(model(x, a), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
        if step % cfg["log_every"] == 0:
            print(f"step {step:6d}  huber {avg:.4f}  {step * cfg['batch'] / (time.time() - t):.1f} tiles/s", flush=True)
        if step >= cfg["steps"]:
            break


if __name__ == "__main__":
    run(CFG)
