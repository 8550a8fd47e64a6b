"""Ticket routing model: assigns support tickets to one of the queues."""
from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("ticket_router")


@dataclass(frozen=True)
class RouterConfig:
    data_dir: Path = Path(tempfile.gettempdir()) / "ticket_router"
    num_tickets: int = 12_000
    num_queues: int = 12
    vocab_size: int = 8_000
    max_tokens: int = 256
    d_model: int = 128
    n_heads: int = 4
    n_layers: int = 2
    batch_size: int = 32
    epochs: int = 100
    lr: float = 5e-4
    seed: int = 11
    log_every: int = 25


PAD, UNK = 0, 1


def synthesize_tickets(cfg: RouterConfig) -> Path:
    target = cfg.data_dir / "tickets.jsonl"
    if target.exists():
        return target
    cfg.data_dir.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    common = [f"w{i}" for i in range(5000)]
    topical = [[f"q{q}t{i}" for i in range(200)] for q in range(cfg.num_queues)]
    partial = target.with_suffix(".tmp")
    with partial.open("w") as out:
        for ident in range(cfg.num_tickets):
            queue = int(rng.integers(cfg.num_queues))
            length = int(np.clip(rng.lognormal(3.5, 0.45), 6, 240))
            words = []
            for u, v in zip(rng.random(length), rng.random(length)):
                pool = topical[queue] if u < 0.15 else common
                words.append(pool[int(v * v * len(pool))])
            out.write(json.dumps({"id": ident, "queue": queue, "text": " ".join(words)}) + "\n")
    partial.rename(target)
    return target


class Vocabulary:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.index: dict[str, int] = {"<pad>": PAD, "<unk>": UNK}

    def fit(self, texts: list[str]) -> "Vocabulary":
        counts: dict[str, int] = {}
        for text in texts:
            for word in text.split():
                counts[word] = counts.get(word, 0) + 1
        for word, _ in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))[: self.limit - 2]:
            self.index[word] = len(self.index)
        return self

    def encode(self, text: str) -> list[int]:
        return [self.index.get(word, UNK) for word in text.split()]


class TicketDataset(Dataset):
    def __init__(self, path: Path, cfg: RouterConfig) -> None:
        with path.open() as fh:
            records = [json.loads(line) for line in fh]
        self.vocab = Vocabulary(cfg.vocab_size).fit([r["text"] for r in records])
        self.items = [(self.vocab.encode(r["text"])[: cfg.max_tokens], r["queue"]) for r in records]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int):
        return self.items[i]


class TicketCollator:
    def __init__(self, cfg: RouterConfig) -> None:
        self.cfg = cfg

    def __call__(self, samples):
        width = self.cfg.max_tokens
        ids = torch.full((len(samples), width), PAD, dtype=torch.long)
        for row, (tokens, _) in enumerate(samples):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        labels = torch.tensor([label for _, label in samples])
        return {"input_ids": ids, "padding_mask": ids.eq(PAD), "labels": labels}


class TicketEncoder(nn.Module):
    def __init__(self, cfg: RouterConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(cfg.d_model)
        self.tokens = nn.Embedding(cfg.vocab_size, cfg.d_model, padding_idx=PAD)
        self.positions = nn.Embedding(cfg.max_tokens, cfg.d_model)
        nn.init.normal_(self.tokens.weight, std=1 / self.scale)
        nn.init.normal_(self.positions.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(cfg.d_model, cfg.n_heads, 4 * cfg.d_model, dropout=0.0,
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.n_layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.d_model)
        self.head = nn.Linear(cfg.d_model, cfg.num_queues)

    def forward(self, input_ids, padding_mask):
        pos = torch.arange(input_ids.size(1), device=input_ids.device)
        hidden = self.tokens(input_ids) * self.scale + self.positions(pos)
        hidden = self.norm(self.encoder(hidden, src_key_padding_mask=padding_mask))
        keep = (~padding_mask).unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * keep).sum(1) / keep.sum(1)
        return self.head(pooled)


class RouterTrainer:
    def __init__(self, cfg: RouterConfig) -> None:
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        dataset = TicketDataset(synthesize_tickets(cfg), cfg)
        self.loader = DataLoader(dataset, batch_size=cfg.batch_size, shuffle=True,
                                 collate_fn=TicketCollator(cfg), drop_last=True)
        self.model = TicketEncoder(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, fused=True)
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.step = 0

    def train_step(self, batch) -> float:
        logits = self.model(batch["input_ids"], batch["padding_mask"])
        loss = self.loss_fn(logits, batch["labels"])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss)

    def fit(self) -> None:
        began = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            self.model.train()
            for batch in self.loader:
                loss = self.train_step(batch)
                self.step += 1
                if self.step % self.cfg.log_every == 0:
                    rate = self.step * self.cfg.batch_size / (time.perf_counter() - began)
                    logger.info("epoch=%d step=%d loss=%.4f tickets/s=%.0f", epoch, self.step, loss, rate)


def parse_args() -> RouterConfig:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=RouterConfig.epochs)
    parser.add_argument("--batch-size", type=int, default=RouterConfig.batch_size)
    parser.add_argument("--lr", type=float, default=RouterConfig.lr)
    ns = parser.parse_args()
    return RouterConfig(epochs=ns.epochs, batch_size=ns.batch_size, lr=ns.lr)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    config = parse_args()
    logger.info("config %s", asdict(config))
    RouterTrainer(config).fit()
