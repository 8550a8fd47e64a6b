"""Water segmentation on four-band satellite tiles that live in the object store."""
import argparse
import http.client
import json
import logging
import multiprocessing
import os
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("floodmap")


@dataclass
class Config:
    root: str = os.path.join(tempfile.gettempdir(), "floodmap_train")
    n_tiles: int = 640
    tile: int = 96
    batch_size: int = 8
    workers: int = 1
    epochs: int = 60
    lr: float = 2e-3
    seed: int = 11
    clip: float = 5.0


def synthesize_bucket(cfg: Config) -> None:
    root = Path(cfg.root)
    if (root / "index.json").exists():
        return
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    keys = []
    for i in range(cfg.n_tiles):
        height = gaussian_filter(rng.normal(size=(cfg.tile, cfg.tile)), 7, mode="wrap")
        veg = gaussian_filter(rng.normal(size=(cfg.tile, cfg.tile)), 3, mode="wrap")
        height, veg = height / height.std(), veg / veg.std()
        water = height < rng.normal(-0.6, 0.4)
        bands = np.stack([900 + 60 * veg, 1000 + 90 * veg - 120 * water,
                          1100 + 110 * height, 2600 + 420 * veg - 1700 * water])
        bands += rng.normal(scale=140, size=bands.shape)
        packed = np.concatenate([bands, water[None] * 1.0]).clip(0, 65535).astype(np.uint16)
        key = f"tiles/{i // 100:02d}/{i:05d}.npy"
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        np.save(root / key, packed)
        keys.append(key)
    (root / "index.json").write_text(json.dumps(keys))


class BucketHandler(BaseHTTPRequestHandler):
    """Local double of the object store, with the response times of the real one."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    root = ""

    def do_GET(self):
        body = Path(self.root, self.path.lstrip("/")).read_bytes()
        jitter = zlib.crc32(self.path.encode()) % 1000 / 1000
        time.sleep(0.015 + 0.025 * jitter)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve_bucket(root: str, pipe, parent: int) -> None:
    BucketHandler.root = root
    server = ThreadingHTTPServer(("127.0.0.1", 0), BucketHandler)
    server.daemon_threads = True
    pipe.send(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:
        time.sleep(0.5)


class BucketClient:
    def __init__(self, port: int):
        self.port = port
        self._local = threading.local()

    def get(self, key: str) -> bytes:
        conn = getattr(self._local, "conn", None)
        if conn is None or self._local.pid != os.getpid():
            conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            self._local.conn, self._local.pid = conn, os.getpid()
        conn.request("GET", "/" + key)
        return conn.getresponse().read()


class TileDataset(Dataset):
    def __init__(self, client: BucketClient, keys):
        self.client = client
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        raw = self.client.get(self.keys[index])
        tile = np.frombuffer(raw, dtype=np.uint16, offset=128).reshape(5, 96, 96)
        x = (tile[:4].astype(np.float32) - 1200.0) / 900.0
        return torch.from_numpy(x), torch.from_numpy(tile[4].astype(np.float32))


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True))


class SmallUNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.enc1, self.enc2, self.mid = block(4, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.dec2, self.dec1 = block(6 * width, 2 * width), block(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        return self.head(self.dec1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))[:, 0]


def seg_loss(logits, target):
    p = torch.sigmoid(logits)
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, target) + dice


class Trainer:
    def __init__(self, cfg: Config, client: BucketClient, keys):
        self.cfg = cfg
        self.val = [client.get(k) for k in keys[:32]]
        self.loader = DataLoader(TileDataset(client, keys[32:]), batch_size=cfg.batch_size, shuffle=True,
                                 num_workers=cfg.workers, persistent_workers=True, drop_last=True)
        self.net = SmallUNet()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.epochs)

    @torch.no_grad()
    def validate(self) -> float:
        self.net.eval()
        tiles = np.stack([np.frombuffer(r, np.uint16, offset=128).reshape(5, 96, 96) for r in self.val])
        x = torch.from_numpy((tiles[:, :4].astype(np.float32) - 1200.0) / 900.0)
        y = torch.from_numpy(tiles[:, 4] > 0)
        pred = self.net(x) > 0
        return ((pred & y).sum() / (pred | y).sum()).item()

    def fit(self):
        step, tic = 0, time.time()
        for epoch in range(self.cfg.epochs):
            self.net.train()
            for x, y in self.loader:
                loss = seg_loss(self.net(x), y)
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), self.cfg.clip)
                self.opt.step()
                step += 1
                if step % 10 == 0:
                    log.info("epoch %d step %d loss %.4f (%.0f s)", epoch, step, loss.item(), time.time() - tic)
            self.sched.step()
            log.info("epoch %d IoU %.3f", epoch, self.validate())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cfg = Config(epochs=args.epochs, lr=args.lr)
    torch.manual_seed(cfg.seed)
    synthesize_bucket(cfg)
    here, there = multiprocessing.Pipe()
    multiprocessing.Process(target=serve_bucket, args=(cfg.root, there, os.getpid()), daemon=True).start()
    client = BucketClient(here.recv())
    keys = json.loads(client.get("index.json"))
    Trainer(cfg, client, keys).fit()


if __name__ == "__main__":
    main()
