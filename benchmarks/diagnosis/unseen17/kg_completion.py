"""Link prediction on a product knowledge graph with ComplEx and self-adversarial negatives."""
import csv
import logging
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("kg")

CONFIG = {
    "data": {"folder": str(Path(tempfile.gettempdir()) / "kg_completion"), "entities": 150_000, "relations": 40,
             "triples": 600_000, "valid": 500},
    "model": {"name": "complex", "rank": 64, "init": 0.1},
    "optim": {"name": "adam", "lr": 2e-3},
    "train": {"batch_size": 512, "negatives": 32, "temperature": 1.0, "reg": 1e-5, "steps": 12_000,
              "log_every": 50, "valid_every": 1000},
    "seed": 11,
}

MODELS, OPTIMIZERS = {}, {}


def register(table, name):
    def wrap(thing):
        table[name] = thing
        return thing
    return wrap


# ------------------------------------------------------------------ data
def make_graph(cfg):
    folder = Path(cfg["folder"])
    if (folder / "valid.tsv").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    n, total = cfg["entities"], cfg["triples"] + cfg["valid"]
    community = rng.integers(0, 300, n)
    members = [np.flatnonzero(community == c) for c in range(300)]
    shift = rng.integers(0, 300, cfg["relations"])
    popularity = rng.zipf(1.3, total) % n
    heads = rng.permutation(n)[popularity]
    relations = rng.integers(0, cfg["relations"], total)
    rows = []
    for h, r in zip(heads, relations):
        pool = members[(community[h] + shift[r]) % 300]
        rows.append((f"e{h}", f"r{r}", f"e{pool[int(len(pool) * rng.random() ** 2)]}"))
    for name, part in (("train.tsv", rows[:cfg["triples"]]), ("valid.tsv", rows[cfg["triples"]:])):
        with open(folder / name, "w", newline="") as f:
            csv.writer(f, delimiter="\t").writerows(part)
    return folder


class TripleStore:
    def __init__(self, folder):
        self.relation_ids = {}
        self.train = self.read(folder / "train.tsv")
        self.valid = self.read(folder / "valid.tsv")
        self.known = defaultdict(set)
        for h, r, t in torch.cat([self.train, self.valid]).tolist():
            self.known[h, r].add(t)

    def read(self, path):
        rows = []
        with open(path, newline="") as f:
            for h, r, t in csv.reader(f, delimiter="\t"):
                rows.append((int(h[1:]), self.relation_ids.setdefault(r, len(self.relation_ids)), int(t[1:])))
        return torch.tensor(rows)


class NegativeSampler:
    """Batches of positive triples, each with uniformly corrupted tails."""

    def __init__(self, triples, entities, batch_size, negatives, generator):
        self.triples, self.entities = triples, entities
        self.batch_size, self.negatives, self.generator = batch_size, negatives, generator

    def __iter__(self):
        while True:
            order = torch.randperm(len(self.triples), generator=self.generator)
            for index in order.split(self.batch_size):
                batch = self.triples[index]
                yield batch, torch.randint(self.entities, (len(batch), self.negatives), generator=self.generator)


# ------------------------------------------------------------------ model
@register(MODELS, "complex")
class ComplEx(nn.Module):
    def __init__(self, entities, relations, rank, init):
        super().__init__()
        self.rank = rank
        self.entity = nn.Embedding(entities, 2 * rank)
        self.relation = nn.Embedding(relations, 2 * rank)
        nn.init.normal_(self.entity.weight, std=init)
        nn.init.normal_(self.relation.weight, std=init)

    def query(self, h, r):
        h, r = self.entity(h), self.relation(r)
        h_re, h_im = h.chunk(2, -1)
        r_re, r_im = r.chunk(2, -1)
        return torch.cat([h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re], -1)

    def forward(self, batch, negatives):
        query = self.query(batch[:, 0], batch[:, 1])
        tail = self.entity(batch[:, 2])
        positive = (query * tail).sum(-1)
        negative = torch.einsum("bd,bnd->bn", query, self.entity(negatives))
        return positive, negative, (query ** 2).mean() + (tail ** 2).mean()

    def score_all(self, h, r):
        return self.query(h, r) @ self.entity.weight.T


@register(OPTIMIZERS, "adam")
def build_adam(model, lr):
    return [torch.optim.Adam(model.parameters(), lr=lr)]


# ------------------------------------------------------------------ training
class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sums, self.count = defaultdict(float), 0

    def update(self, **values):
        self.count += 1
        for key, value in values.items():
            self.sums[key] += float(value)

    def summary(self):
        return " ".join(f"{key}={value / max(1, self.count):.4f}" for key, value in self.sums.items())


class Trainer:
    def __init__(self, config):
        self.config = config
        torch.manual_seed(config["seed"])
        self.store = TripleStore(make_graph(config["data"]))
        model = dict(config["model"])
        self.model = MODELS[model.pop("name")](config["data"]["entities"], config["data"]["relations"], **model)
        optim = dict(config["optim"])
        self.optimizers = OPTIMIZERS[optim.pop("name")](self.model, **optim)
        train = config["train"]
        self.sampler = NegativeSampler(self.store.train, config["data"]["entities"], train["batch_size"],
                                       train["negatives"], torch.Generator().manual_seed(config["seed"]))
        self.meter = Meter()

    def train_step(self, batch, negatives):
        train = self.config["train"]
        positive, negative, norm = self.model(batch, negatives)
        weights = F.softmax(negative.detach() * train["temperature"], -1)
        loss = -F.logsigmoid(positive).mean() - (weights * F.logsigmoid(-negative)).sum(-1).mean()
        total = loss + train["reg"] * norm
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        total.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.meter.update(loss=loss.detach(), margin=(positive.mean() - negative.mean()).detach())

    @torch.no_grad()
    def validate(self):
        ranks = []
        for chunk in self.store.valid.split(64):
            scores = self.model.score_all(chunk[:, 0], chunk[:, 1])
            target = scores.gather(1, chunk[:, 2:])
            for row, (h, r, _) in enumerate(chunk.tolist()):
                scores[row, list(self.store.known[h, r])] = -torch.inf
            ranks.append((scores > target).sum(1) + 1)
        ranks = torch.cat(ranks).float()
        return {"mrr": (1 / ranks).mean().item(), "hits10": (ranks <= 10).float().mean().item()}

    def fit(self):
        train, started = self.config["train"], time.perf_counter()
        for step, (batch, negatives) in enumerate(self.sampler, 1):
            self.train_step(batch, negatives)
            if step % train["log_every"] == 0:
                log.info("step %d %s (%.1fs)", step, self.meter.summary(), time.perf_counter() - started)
                self.meter.reset()
            if step % train["valid_every"] == 0:
                log.info("valid %s", self.validate())
                torch.save(self.model.state_dict(), Path(self.config["data"]["folder"]) / "last.pt")
            if step == train["steps"]:
                break


if __name__ == "__main__":
    Trainer(CONFIG).fit()
