"""Two-tower retrieval model for the shop's "for you" rail."""
import argparse
import dataclasses
import json
import multiprocessing as mp
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


@dataclasses.dataclass
class Config:
    root: str = os.path.join(tempfile.gettempdir(), "two_tower")
    users: int = 8_000
    items: int = 6_000
    events: int = 400_000
    history: int = 20
    dim: int = 64
    batch: int = 1024
    epochs: int = 100
    lr: float = 1e-3
    temperature: float = 0.07
    shards: int = 2


class EventStore:
    def __init__(self, cfg):
        self.file = os.path.join(cfg.root, "events.npz")
        if not os.path.exists(self.file):
            os.makedirs(cfg.root, exist_ok=True)
            self._generate(cfg)
        z = np.load(self.file)
        self.user, self.item, self.past, self.content = z["user"], z["item"], z["past"], z["content"]

    def _generate(self, cfg):
        rng = np.random.default_rng(9)
        n_taste = 60
        item_taste = rng.integers(0, n_taste, cfg.items)
        members = [np.flatnonzero(item_taste == t) for t in range(n_taste)]
        centre = rng.normal(0, 1, (n_taste, 32))
        content = (centre[item_taste] + rng.normal(0, 0.7, (cfg.items, 32))).astype(np.float32)
        user_taste = rng.integers(0, n_taste, (cfg.users, 3))
        user = np.sort(rng.integers(0, cfg.users, cfg.events))
        taste = user_taste[user, rng.integers(0, 3, cfg.events)]
        pick = rng.beta(0.6, 1.6, cfg.events)
        item = np.array([members[t][int(p * len(members[t]))] for t, p in zip(taste, pick)], dtype=np.int32)
        past = np.zeros((cfg.events, cfg.history), dtype=np.int32)
        for k in range(1, cfg.history + 1):
            same = user[k:] == user[:-k]
            past[k:, k - 1] = np.where(same, item[:-k] + 1, 0)
        np.savez(self.file, user=user.astype(np.int32), item=item, past=past, content=content)


class EventDataset(Dataset):
    def __init__(self, store):
        self.item = torch.from_numpy(store.item).long()
        self.past = torch.from_numpy(store.past).long()

    def __len__(self):
        return len(self.item)

    def __getitem__(self, index):
        return self.past[index], self.item[index]


class TwoTower(nn.Module):
    def __init__(self, cfg, content):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("content", torch.from_numpy(content))
        self.history = nn.EmbeddingBag(cfg.items + 1, cfg.dim, mode="mean", padding_idx=0)
        self.item_id = nn.Embedding(cfg.items, cfg.dim)
        self.user_net = nn.Sequential(nn.Linear(cfg.dim, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 128))
        self.item_net = nn.Sequential(nn.Linear(cfg.dim + 32, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 128))

    def embed_users(self, past):
        return F.normalize(self.user_net(self.history(past)), dim=1)

    def embed_items(self, items):
        return F.normalize(self.item_net(torch.cat([self.item_id(items), self.content[items]], 1)), dim=1)

    def forward(self, past, items):
        return self.embed_users(past) @ self.embed_items(items).T / self.cfg.temperature


# --- recall monitor -------------------------------------------------------------------------

def recall_shard(root, shard, shards, owner):
    """Recall@50 of the newest snapshot for a part of the held-out users."""
    while os.getppid() == owner:
        try:
            z = np.load(os.path.join(root, "snapshot.npz"))
            items, users, truth = z["items"], z["users"][shard::shards], z["truth"][shard::shards]
        except (OSError, ValueError, KeyError, EOFError):
            time.sleep(0.5)
            continue
        hits = 0
        for lo in range(0, len(users), 64):
            scores = users[lo:lo + 64] @ items.T
            top = np.argpartition(-scores, 50, axis=1)[:, :50]
            hits += int((top == truth[lo:lo + 64, None]).any(1).sum())
            if os.getppid() != owner:
                return
        with open(os.path.join(root, f"recall_{shard}.json"), "w") as fh:
            json.dump({"shard": shard, "recall": hits / max(1, len(users)), "at": time.time()}, fh)


def monitor(root, shards):
    parent = os.getppid()
    procs = [mp.Process(target=recall_shard, args=(root, s, shards, os.getpid()), daemon=True) for s in range(shards)]
    for p in procs:
        p.start()
    while os.getppid() == parent:
        time.sleep(0.5)
    for p in procs:
        p.terminate()


def launch_monitor(cfg):
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    cmd = [sys.executable, os.path.abspath(__file__), "--monitor", str(cfg.shards), "--root", cfg.root]
    return subprocess.Popen(cmd, env=env, stdout=subprocess.DEVNULL)


def write_snapshot(model, data, holdout, cfg):
    model.eval()
    with torch.no_grad():
        past, truth = data[holdout]
        users = model.embed_users(past).numpy()
        items = model.embed_items(torch.arange(cfg.items)).numpy()
    tmp = os.path.join(cfg.root, "snapshot.tmp.npz")
    np.savez(tmp, users=users, items=items, truth=truth.numpy())
    os.replace(tmp, os.path.join(cfg.root, "snapshot.npz"))
    model.train()


def latest_recall(cfg):
    values = []
    for s in range(cfg.shards):
        try:
            with open(os.path.join(cfg.root, f"recall_{s}.json")) as fh:
                values.append(json.load(fh)["recall"])
        except (OSError, ValueError):
            pass
    return float(np.mean(values)) if values else float("nan")


def main(cfg):
    torch.manual_seed(3)
    store = EventStore(cfg)
    data = EventDataset(store)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), cfg.batch, drop_last=True), batch_size=None)
    holdout = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))[:6000]
    model = TwoTower(cfg, store.content)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    write_snapshot(model, data, holdout, cfg)
    watcher = launch_monitor(cfg)
    try:
        step = 0
        for epoch in range(cfg.epochs):
            for past, item in loader:
                logits = model(past, item)
                target = torch.arange(len(item))
                loss = F.cross_entropy(logits, target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % 20 == 0:
                    top1 = (logits.argmax(1) == target).float().mean().item()
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f} in-batch top1 {top1:.3f}", flush=True)
            write_snapshot(model, data, holdout, cfg)
            print(f"epoch {epoch} finished, recall@50 {latest_recall(cfg):.4f}")
    finally:
        if watcher is not None:
            watcher.terminate()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--monitor", type=int, default=0)
    ap.add_argument("--root", default=Config.root)
    args = ap.parse_args()
    if args.monitor:
        monitor(args.root, args.monitor)
    else:
        main(Config(root=args.root))
