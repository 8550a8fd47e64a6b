"""Predict the next play call (run / short pass / deep pass / punt / field goal / kneel)
from the situation before the snap. Play-by-play style table, tabular net with
embeddings for the teams."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn, optim
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAUROC, MulticlassAccuracy, MulticlassF1Score
from tqdm import tqdm

PLAYS = ["run", "short_pass", "deep_pass", "punt", "field_goal", "kneel"]
NUMERIC = ["down", "to_go", "yardline", "score_diff", "seconds_left", "quarter", "timeouts",
           "shotgun", "no_huddle", "wind", "temperature", "prev_gain", "drive_plays", "spread"]
TEAMS = 32
CACHE = Path(tempfile.gettempdir()) / "playcall"


@dataclass
class Config:
    epochs: int = 10
    batch_size: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-5
    hidden: int = 256
    dropout: float = 0.1
    seed: int = 2023


def simulate_season(n=240_000, seed=5):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({
        "down": rng.choice([1, 2, 3, 4], n, p=[0.45, 0.32, 0.18, 0.05]),
        "to_go": np.clip(rng.poisson(8, n), 1, 25),
        "yardline": rng.integers(1, 100, n),
        "score_diff": rng.normal(0, 10, n).round(),
        "seconds_left": rng.integers(0, 3600, n),
        "timeouts": rng.integers(0, 4, n),
        "shotgun": rng.integers(0, 2, n),
        "no_huddle": (rng.random(n) < 0.1).astype(int),
        "wind": rng.gamma(2, 4, n),
        "temperature": rng.normal(55, 15, n),
        "prev_gain": rng.normal(4, 6, n).round(),
        "drive_plays": rng.integers(1, 15, n),
        "spread": rng.normal(0, 6, n),
        "offense": rng.integers(0, TEAMS, n),
        "defense": rng.integers(0, TEAMS, n),
    })
    df["quarter"] = 4 - df["seconds_left"] // 900
    habit = rng.normal(0, 0.4, (TEAMS, 6))
    fourth = (df["down"] == 4).astype(float)
    logit = np.stack([
        1.0 - 0.12 * df["to_go"] + 0.05 * df["score_diff"] - 0.7 * df["shotgun"],
        0.6 + 0.3 * df["shotgun"] + 0.04 * df["to_go"],
        -1.0 + 0.09 * df["to_go"] - 0.03 * df["score_diff"] - 0.03 * df["wind"],
        -6 + 7 * fourth + 0.05 * (df["yardline"] - 50),
        -6 + 7 * fourth - 0.06 * (df["yardline"] - 40),
        -5 + 4 * ((df["seconds_left"] < 120) & (df["score_diff"] > 0)),
    ], axis=1) + habit[df["offense"]] - 0.3 * habit[df["defense"]]
    df["play"] = (logit + rng.gumbel(size=logit.shape)).argmax(1)
    return df


def load_plays():
    CACHE.mkdir(exist_ok=True)
    path = CACHE / "plays.parquet"
    if not path.exists():
        simulate_season().to_parquet(path)
    df = pd.read_parquet(path)
    num = df[NUMERIC].astype("float32")
    num = (num - num.mean()) / num.std()
    teams = df[["offense", "defense"]].to_numpy(np.int64)
    return TensorDataset(torch.from_numpy(num.to_numpy().copy()), torch.from_numpy(teams.copy()),
                         torch.from_numpy(df["play"].to_numpy(np.int64).copy()))


def batches(dataset, batch_size, shuffle):
    order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(order, batch_size, drop_last=False), batch_size=None)


class PlayNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.offense = nn.Embedding(TEAMS, 8)
        self.defense = nn.Embedding(TEAMS, 8)
        self.net = nn.Sequential(
            nn.Linear(len(NUMERIC) + 16, cfg.hidden), nn.BatchNorm1d(cfg.hidden), nn.ReLU(), nn.Dropout(cfg.dropout),
            nn.Linear(cfg.hidden, cfg.hidden), nn.BatchNorm1d(cfg.hidden), nn.ReLU(), nn.Dropout(cfg.dropout),
            nn.Linear(cfg.hidden, len(PLAYS)))

    def forward(self, num, teams):
        return self.net(torch.cat([num, self.offense(teams[:, 0]), self.defense(teams[:, 1])], dim=1))


def make_metrics(prefix):
    k = len(PLAYS)
    return MetricCollection({
        "acc": MulticlassAccuracy(num_classes=k, average="micro"),
        "f1": MulticlassF1Score(num_classes=k, average="macro"),
        "auroc": MulticlassAUROC(num_classes=k),
    }, prefix=prefix)


def run_validation(model, loader, metrics):
    model.eval()
    metrics.reset()
    with torch.no_grad():
        for num, teams, play in loader:
            metrics.update(model(num, teams).softmax(dim=1), play)
    model.train()
    return {k: round(v.item(), 4) for k, v in metrics.compute().items()}


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    data = load_plays()
    cut = int(len(data) * 0.95)
    train = TensorDataset(*[t[:cut] for t in data.tensors])
    valid = TensorDataset(*[t[cut:] for t in data.tensors])
    train_loader = batches(train, cfg.batch_size, shuffle=True)
    valid_loader = batches(valid, 4096, shuffle=False)

    model = PlayNet(cfg)
    opt = optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.02)
    train_metrics, valid_metrics = make_metrics("train_"), make_metrics("val_")

    best = 0.0
    for epoch in range(cfg.epochs):
        train_metrics.reset()
        bar = tqdm(train_loader, desc=f"epoch {epoch}", mininterval=1.0)
        for num, teams, play in bar:
            opt.zero_grad(set_to_none=True)
            logits = model(num, teams)
            loss = criterion(logits, play)
            loss.backward()
            opt.step()

            train_metrics.update(logits.detach().softmax(dim=1), play)
            scores = train_metrics.compute()
            bar.set_postfix(loss=f"{loss.item():.3f}", auroc=f"{scores['train_auroc'].item():.3f}",
                            acc=f"{scores['train_acc'].item():.3f}")

        print({k: round(v.item(), 4) for k, v in train_metrics.compute().items()})
        result = run_validation(model, valid_loader, valid_metrics)
        print(result)
        if result["val_auroc"] > best:
            best = result["val_auroc"]
            torch.save(model.state_dict(), CACHE / "best.pt")


if __name__ == "__main__":
    main()
