"""Semantic matching for the help-centre search: character trigram towers trained on the click log."""
import json
import logging
import random
import time
import zlib
from typing import Dict, Iterator, List, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(message)s")
logger = logging.getLogger("match")

N_DOCS = 24_000
N_CLICKS = 60_000
BUCKETS = 6_000
MAX_GRAMS = 24
DIM = 96
OUT = 128
BATCH = 128
NEG = 4
TEMPERATURE = 0.07
EPOCHS = 50


def write_logs(docs_path: str, clicks_path: str) -> None:
    rnd = random.Random(5)
    syll = ["ac", "count", "bil", "ling", "re", "fund", "pass", "word", "ship", "ping", "in", "voice", "log",
            "device", "plan", "up", "grade", "error", "code", "sync", "phone", "mail", "card", "limit", "trial"]
    vocab = sorted({"".join(rnd.choices(syll, k=rnd.choice([1, 2, 2, 3]))) for _ in range(6000)})
    titles = []
    with open(docs_path, "w") as f:
        for i in range(N_DOCS):
            titles.append(rnd.choices(vocab, k=rnd.randint(3, 7)))
            f.write(json.dumps({"doc_id": i, "title": " ".join(titles[-1])}) + "\n")
    with open(clicks_path, "w") as f:
        for _ in range(N_CLICKS):
            doc = min(int(rnd.paretovariate(0.5)), N_DOCS) - 1
            if rnd.random() < 0.7:
                doc = rnd.randrange(N_DOCS)
            words = rnd.sample(titles[doc], k=rnd.randint(1, 3))
            query = list(" ".join(words))
            if len(query) > 4 and rnd.random() < 0.3:
                del query[rnd.randrange(len(query))]
            f.write(json.dumps({"query": "".join(query), "doc_id": doc}) + "\n")


def read_jsonl(path: str) -> Iterator[Dict]:
    with open(path) as f:
        for line in f:
            yield json.loads(line)


def trigrams(text: str) -> np.ndarray:
    padded = f"#{text}#"
    ids = [1 + zlib.crc32(padded[i:i + 3].encode()) % (BUCKETS - 1) for i in range(len(padded) - 2)]
    row = np.zeros(MAX_GRAMS, dtype=np.int64)
    row[: min(len(ids), MAX_GRAMS)] = ids[:MAX_GRAMS]
    return row


class ClickDataset(Dataset):
    def __init__(self, docs: np.ndarray, queries: np.ndarray, clicked: np.ndarray) -> None:
        self.docs = docs
        self.queries = queries
        self.clicked = clicked

    def __len__(self) -> int:
        return len(self.clicked)

    def __getitem__(self, i: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        pos = self.clicked[i]
        neg = np.random.choice(len(self.docs), NEG, replace=False)
        ids = np.concatenate([[pos], neg])
        return self.queries[i], self.docs[ids], ids


def collate(rows: List[Tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Tuple[torch.Tensor, ...]:
    queries, docs, ids = zip(*rows)
    return torch.from_numpy(np.stack(queries)), torch.from_numpy(np.stack(docs)), torch.from_numpy(np.stack(ids))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, DIM, mode="mean", padding_idx=0)
        self.net = nn.Sequential(nn.Linear(DIM, 384), nn.GELU(), nn.LayerNorm(384), nn.Linear(384, OUT))

    def forward(self, grams: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.net(self.bag(grams)), dim=-1)


class Matcher(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = Tower()
        self.doc = Tower()

    def forward(self, q: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        b, k, g = d.shape
        qv = self.query(q)
        dv = self.doc(d.reshape(b * k, g))
        return qv @ dv.T / TEMPERATURE


def main() -> None:
    write_logs("docs.jsonl", "clicks.jsonl")
    np.random.seed(0)
    torch.manual_seed(0)
    docs = np.stack([trigrams(d["title"]) for d in read_jsonl("docs.jsonl")])
    clicks = list(read_jsonl("clicks.jsonl"))
    queries = np.stack([trigrams(c["query"]) for c in clicks])
    clicked = np.array([c["doc_id"] for c in clicks])
    cut = len(clicked) - 2000
    train = ClickDataset(docs, queries[:cut], clicked[:cut])
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, collate_fn=collate, drop_last=True)

    model = Matcher()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, t0 = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        model.train()
        for q, d, ids in loader:
            scores = model(q, d)
            # the same document may be drawn for another query of the batch: don't push those apart
            flat, pos = ids.reshape(-1), ids[:, 0]
            target = torch.arange(len(q)) * (NEG + 1)
            clash = (flat[None, :] == pos[:, None]).scatter(1, target[:, None], False)
            loss = F.cross_entropy(scores.masked_fill(clash, -1e4), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0:
                logger.info("epoch %d step %d loss %.4f %.1f q/s", epoch, step, loss.item(),
                            step * BATCH / (time.perf_counter() - t0))
        model.eval()
        with torch.no_grad():
            dv = model.doc(torch.from_numpy(docs))
            qv = model.query(torch.from_numpy(queries[cut:]))
            truth = torch.from_numpy(clicked[cut:])
            rank = (qv @ dv.T > (qv * dv[truth]).sum(1, keepdim=True)).sum(1) + 1
        logger.info("epoch %d mrr %.4f", epoch, (1.0 / rank).mean().item())


if __name__ == "__main__":
    main()
