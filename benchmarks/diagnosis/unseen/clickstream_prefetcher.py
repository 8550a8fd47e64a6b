"""Next-page prediction from a click log kept as JSON lines.

A reader turns log lines into tensors ahead of the model, so that the model never has to wait for the log.
usage: clickstream_prefetcher.py FOLDER
"""
import json
import math
import pathlib
import queue
import random
import sys
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PAGES = 2000
WIDTH = 400
BATCH = 128
HISTORY = 30
SESSIONS = 1500


def write_log(path):
    rng = np.random.default_rng(11)
    countries = ["de", "fr", "pl", "se", "it"]
    with open(path, "w") as log:
        for uid in range(SESSIONS):
            start = int(rng.integers(0, PAGES))
            pages = (start + rng.geometric(0.05, HISTORY + 1).cumsum()) % PAGES
            dwell = rng.gamma(2.0, 8.0, HISTORY + 1).round(2)
            events = [{"p": p, "dt": d} for p, d in zip(pages.tolist(), dwell.tolist())]
            log.write(json.dumps({"uid": uid, "country": countries[uid % 5], "events": events}) + "\n")


class ClickReader(threading.Thread):
    """Keeps a window of recent batches; the newest one replaces the oldest one when the window is full."""

    def __init__(self, path, window=24):
        super().__init__(daemon=True)
        self.path = path
        self.batches = queue.Queue(maxsize=window)

    def parse(self, line):
        record = json.loads(line)
        pages, dwell = [], []
        for event in record["events"]:
            pages.append(event["p"])
            dwell.append(math.log1p(event["dt"]))
        country = ("de", "fr", "pl", "se", "it").index(record["country"])
        return pages[:-1], dwell[:-1], country, pages[-1]

    def run(self):
        while True:
            lines = self.path.read_text().splitlines()
            random.shuffle(lines)
            for start in range(0, len(lines) - BATCH + 1, BATCH):
                rows = [self.parse(line) for line in lines[start:start + BATCH]]
                batch = [torch.tensor(column) for column in zip(*rows)]
                if self.batches.full():
                    self.batches.get()
                self.batches.put(batch)


class NextPage(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.page = nn.Embedding(PAGES, dim)
        self.country = nn.Embedding(5, dim)
        self.attend = nn.Linear(dim + 1, 1)
        self.tower = nn.Sequential(
            nn.Linear(2 * dim, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, PAGES))

    def forward(self, pages, dwell, country):
        seen = self.page(pages)
        weight = self.attend(torch.cat([seen, dwell.unsqueeze(-1)], -1)).softmax(1)
        pooled = (seen * weight).sum(1)
        return self.tower(torch.cat([pooled, self.country(country)], -1))


def main(folder):
    random.seed(5)
    torch.manual_seed(5)
    path = pathlib.Path(folder) / "clicks.jsonl"
    write_log(path)
    reader = ClickReader(path)
    model = NextPage()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    seen, average, began = 0, 0.0, time.time()
    reader.start()
    for step in range(1, 200_001):
        pages, dwell, country, target = reader.batches.get()
        loss = F.cross_entropy(model(pages, dwell, country), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seen += BATCH
        if step % 100 == 0:
            average = loss.item() if not average else 0.8 * average + 0.2 * loss.item()
            print(f"step {step}  loss {average:.4f}  {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
