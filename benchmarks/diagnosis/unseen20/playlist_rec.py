"""Next-track model for the home feed: user history -> tower -> sampled softmax over the catalogue."""
from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("playlist")


@dataclass(frozen=True)
class Config:
    n_users: int = 20_000
    n_tracks: int = 150_000
    n_events: int = 600_000
    history: int = 20
    dim: int = 48
    hidden: int = 256
    batch_size: int = 256
    negatives: int = 512
    lr: float = 0.05
    epochs: int = 40
    log_every: int = 100
    events_path: str = "play_events.parquet"
    seed: int = 1234


def dump_events(cfg: Config) -> None:
    """Plays with a popularity tail and a per-user taste, as the events table has them."""
    rng = np.random.default_rng(cfg.seed)
    user = rng.integers(0, cfg.n_users, cfg.n_events)
    taste = rng.integers(0, 300, cfg.n_users)
    rank = np.minimum(rng.pareto(0.6, cfg.n_events).astype(np.int64), cfg.n_tracks // 300 - 1)
    genre = np.where(rng.random(cfg.n_events) < 0.8, taste[user], rng.integers(0, 300, cfg.n_events))
    frame = pd.DataFrame({
        "user_id": user,
        "track_id": genre * (cfg.n_tracks // 300) + rank,
        "ts": rng.integers(1_700_000_000, 1_702_600_000, cfg.n_events),
    })
    frame.to_parquet(cfg.events_path, index=False)


def build_examples(cfg: Config) -> tuple[Tensor, Tensor]:
    frame = pd.read_parquet(cfg.events_path).sort_values(["user_id", "ts"], kind="stable")
    tracks = frame["track_id"].to_numpy()
    users = frame["user_id"].to_numpy()
    windows = np.lib.stride_tricks.sliding_window_view(tracks, cfg.history + 1)
    same_user = users[: len(windows)] == users[cfg.history:]
    windows = windows[same_user]
    return torch.from_numpy(windows[:, :-1].copy()), torch.from_numpy(windows[:, -1].copy())


class NextTrack(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.tracks = nn.Embedding(cfg.n_tracks, cfg.dim)
        self.bias = nn.Embedding(cfg.n_tracks, 1)
        nn.init.normal_(self.tracks.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)
        self.position = nn.Parameter(torch.zeros(cfg.history, 1))
        self.tower = nn.Sequential(
            nn.Linear(2 * cfg.dim, cfg.hidden), nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.dim),
        )

    def user_vector(self, history: Tensor) -> Tensor:
        emb = self.tracks(history)
        weighted = (emb * torch.softmax(self.position, 0)).sum(1)
        return self.tower(torch.cat([weighted, emb[:, -1]], dim=1))

    def forward(self, history: Tensor, target: Tensor, negatives: Tensor) -> Tensor:
        u = self.user_vector(history)
        pos = (u * self.tracks(target)).sum(1) + self.bias(target).squeeze(1)
        neg = u @ self.tracks(negatives).T + self.bias(negatives).squeeze(1)
        neg = neg.masked_fill(negatives[None, :] == target[:, None], -1e9)
        return torch.cat([pos[:, None], neg], dim=1)


@torch.no_grad()
def recall_at_50(model: NextTrack, history: Tensor, target: Tensor) -> float:
    scores = model.user_vector(history) @ model.tracks.weight.T + model.bias.weight.squeeze(1)
    top = scores.topk(50, dim=1).indices
    return (top == target[:, None]).any(1).float().mean().item()


def main() -> None:
    cfg = Config()
    torch.manual_seed(cfg.seed)
    dump_events(cfg)
    history, target = build_examples(cfg)
    n_holdout = 256
    perm = torch.randperm(len(target))
    holdout, train = perm[:n_holdout], perm[n_holdout:]
    log.info("%d training windows, %d tracks", len(train), cfg.n_tracks)

    model = NextTrack(cfg)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=cfg.lr, initial_accumulator_value=0.1)

    step = 0
    started = time.monotonic()
    for epoch in range(cfg.epochs):
        order = train[torch.randperm(len(train))]
        for idx in order.split(cfg.batch_size):
            negatives = torch.randint(0, cfg.n_tracks, (cfg.negatives,))
            logits = model(history[idx], target[idx], negatives)
            loss = F.cross_entropy(logits, torch.zeros(len(idx), dtype=torch.long))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % cfg.log_every == 0:
                log.info("epoch=%d step=%d loss=%.4f steps_per_s=%.1f", epoch, step, loss.item(),
                         step / (time.monotonic() - started))
        log.info("epoch=%d recall@50=%.4f", epoch, recall_at_50(model, history[holdout], target[holdout]))


if __name__ == "__main__":
    main()
