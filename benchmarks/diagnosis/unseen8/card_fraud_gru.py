import argparse
import logging
import os
import tempfile
from dataclasses import asdict, dataclass, field
from typing import List, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("fraud.train")


@dataclass
class DataConfig:
    folder: str = os.path.join(tempfile.gettempdir(), "card_fraud_gru")
    accounts: int = 9000
    min_len: int = 30
    max_len: int = 160
    merchant_codes: int = 180
    batch_size: int = 48
    workers: int = 2


@dataclass
class TrainConfig:
    data: DataConfig = field(default_factory=DataConfig)
    hidden: int = 64
    lr: float = 2e-3
    epochs: int = 250
    log_every: int = 25
    seed: int = 2024


NUMERIC = ["amount_log", "hour_sin", "hour_cos", "gap_log", "foreign", "contactless", "balance", "velocity_1h", "velocity_24h"]


class LedgerBuilder:
    """Produces a ledger extract with the columns of the production feed."""

    def __init__(self, cfg: DataConfig, seed: int) -> None:
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)

    def path(self) -> str:
        return os.path.join(self.cfg.folder, "ledger.npz")

    def ensure(self) -> str:
        os.makedirs(self.cfg.folder, exist_ok=True)
        if os.path.exists(self.path()):
            return self.path()
        rng, c = self.rng, self.cfg
        lengths = rng.integers(c.min_len, c.max_len + 1, c.accounts)
        total = int(lengths.sum())
        account = np.repeat(np.arange(c.accounts), lengths)
        spend = rng.normal(3.2, 0.5, c.accounts)[account]
        hour = rng.normal(14, 4, total) % 24
        gap = rng.exponential(8.0, total)
        numeric = np.stack([
            rng.normal(spend, 0.7), np.sin(hour / 24 * 2 * np.pi), np.cos(hour / 24 * 2 * np.pi), np.log1p(gap),
            rng.random(total) < 0.06, rng.random(total) < 0.55, rng.normal(0, 1, total),
            rng.poisson(0.4, total), rng.poisson(2.5, total),
        ], axis=1).astype(np.float32)
        mcc = rng.zipf(1.4, total) % c.merchant_codes
        starts = np.concatenate([[0], np.cumsum(lengths)])
        label = (rng.random(c.accounts) < 0.3).astype(np.float32)
        for a in np.flatnonzero(label):
            s = starts[a] + rng.integers(0, lengths[a] - 12)
            numeric[s:s + 10, 0] += 0.9
            numeric[s:s + 10, 3] *= 0.4
            numeric[s:s + 10, 4] = rng.random(10) < 0.5
            numeric[s:s + 10, 7] += 1
        np.savez(self.path(), numeric=numeric, mcc=mcc.astype(np.int64), starts=starts, label=label)
        log.info("ledger written: %d accounts, %d transactions", c.accounts, total)
        return self.path()


class AccountHistory(Dataset):
    def __init__(self, path: str) -> None:
        z = np.load(path)
        self.numeric, self.mcc = z["numeric"], z["mcc"]
        self.starts, self.label = z["starts"], z["label"]
        self.numeric = (self.numeric - self.numeric.mean(0)) / self.numeric.std(0)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, i: int) -> Tuple[np.ndarray, np.ndarray, float]:
        a, b = self.starts[i], self.starts[i + 1]
        return self.numeric[a:b], self.mcc[a:b], float(self.label[i])


class SequenceCollator:
    """Pads the accounts of a batch to the longest one, longest first."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def __call__(self, rows: List[Tuple[np.ndarray, np.ndarray, float]]) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        rows = sorted(rows, key=lambda r: len(r[1]), reverse=True)
        lengths = torch.tensor([len(r[1]) for r in rows])
        longest = int(lengths[0])
        x = torch.zeros(len(rows), longest, self.n_features)
        codes = torch.zeros(len(rows), longest, dtype=torch.long)
        for i, (numeric, mcc, _) in enumerate(rows):
            for t in range(len(mcc)):
                for k in range(self.n_features):
                    x[i, t, k] = float(numeric[t, k])
                codes[i, t] = int(mcc[t])
        y = torch.tensor([r[2] for r in rows])
        return x, codes, lengths, y


class FraudNet(nn.Module):
    def __init__(self, cfg: TrainConfig) -> None:
        super().__init__()
        self.code = nn.Embedding(cfg.data.merchant_codes, 12)
        self.proj = nn.Linear(len(NUMERIC) + 12, cfg.hidden)
        self.rnn = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.score = nn.Sequential(nn.Dropout(0.1), nn.Linear(2 * cfg.hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor, codes: Tensor, lengths: Tensor) -> Tensor:
        h = torch.relu(self.proj(torch.cat([x, self.code(codes)], dim=-1)))
        packed = pack_padded_sequence(h, lengths, batch_first=True)
        out, last = self.rnn(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, padding_value=-1e4)
        return self.score(torch.cat([last[-1], padded.max(dim=1).values], dim=-1)).squeeze(-1)


class Trainer:
    def __init__(self, cfg: TrainConfig) -> None:
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        dataset = AccountHistory(LedgerBuilder(cfg.data, cfg.seed).ensure())
        self.loader = DataLoader(
            dataset, batch_size=cfg.data.batch_size, shuffle=True, drop_last=True,
            num_workers=cfg.data.workers, persistent_workers=cfg.data.workers > 0,
            collate_fn=SequenceCollator(len(NUMERIC)),
        )
        self.model = FraudNet(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=20, gamma=0.8)
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))
        self.history: List[float] = []

    def train_step(self, batch: Tuple[Tensor, ...]) -> float:
        x, codes, lengths, y = batch
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x, codes, lengths), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def run(self) -> None:
        log.info("config %s", asdict(self.cfg))
        step = 0
        for epoch in range(self.cfg.epochs):
            self.model.train()
            for batch in self.loader:
                self.history.append(self.train_step(batch))
                step += 1
                if step % self.cfg.log_every == 0:
                    recent = self.history[-self.cfg.log_every:]
                    log.info("epoch=%d step=%d loss=%.4f", epoch, step, sum(recent) / len(recent))
            self.scheduler.step()
            torch.save(self.model.state_dict(), os.path.join(self.cfg.data.folder, "fraudnet.pt"))


def parse_args() -> TrainConfig:
    parser = argparse.ArgumentParser(description="Train the card fraud sequence model")
    parser.add_argument("--epochs", type=int, default=TrainConfig.epochs)
    parser.add_argument("--lr", type=float, default=TrainConfig.lr)
    ns = parser.parse_args()
    return TrainConfig(epochs=ns.epochs, lr=ns.lr)


if __name__ == "__main__":
    Trainer(parse_args()).run()
