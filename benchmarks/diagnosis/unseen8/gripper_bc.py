"""Behavioural cloning for the pick-and-place arm from teleoperation logs (one CSV per episode)."""
import csv
import dataclasses
import math
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

COLUMNS = ["t", "q1", "q2", "q3", "q4", "q5", "q6", "grip", "fx", "fy", "fz"]


@dataclasses.dataclass(frozen=True)
class Settings:
    log_dir: pathlib.Path = pathlib.Path(tempfile.gettempdir()) / "gripper_bc"
    episodes: int = 1600
    min_ticks: int = 200
    past: int = 24
    future: int = 8
    windows_per_episode: int = 3
    batch: int = 64
    epochs: int = 120
    hidden: int = 160
    lr: float = 1e-3
    seed: int = 17


def record_episodes(s: Settings) -> None:
    """Plays minimum-jerk reaches with a noisy operator and writes them as the robot would."""
    if (s.log_dir / "COMPLETE").exists():
        return
    s.log_dir.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(s.seed)
    row = "%.2f," + ",".join(["%.4f"] * 6) + ",%d,%.3f,%.3f,%.3f"
    for e in range(s.episodes):
        n = int(rng.integers(180, 340))
        tau = np.linspace(0, 1, n)
        knots = rng.normal(0, 0.8, (4, 6))
        q = np.zeros((n, 6))
        for a in range(3):
            u = np.clip(tau * 3 - a, 0, 1)
            q += (knots[a + 1] - knots[a]) * (10 * u**3 - 15 * u**4 + 6 * u**5)[:, None]
        q += knots[0] + np.cumsum(rng.normal(0, 0.0015, q.shape), 0)
        grip = ((tau > 0.33) & (tau < 0.7)).astype(int)
        force = rng.normal(0, 0.2, (n, 3)) + grip[:, None] * np.array([0.1, 0.0, -2.5])
        table = np.column_stack([tau * n * 0.02, q, grip, force])
        text = "\n".join(row % tuple(r) for r in table.tolist())
        (s.log_dir / f"ep_{e:05d}.csv").write_text(",".join(COLUMNS) + "\n" + text + "\n")
    (s.log_dir / "COMPLETE").touch()


class TeleopWindows(IterableDataset):
    """Streams (past observation, future joint motion) windows in random order."""

    def __init__(self, s: Settings):
        super().__init__()
        self.s = s
        self.rounds = 0

    def load_episode(self, path: pathlib.Path) -> np.ndarray | None:
        ticks = []
        with path.open(newline="") as f:
            for rec in csv.DictReader(f):
                values = [float(rec[c]) for c in COLUMNS]
                if all(math.isfinite(v) for v in values):
                    ticks.append(values[1:])
        if len(ticks) < self.s.min_ticks:
            return None
        return np.asarray(ticks, dtype=np.float32)

    def load_all(self) -> list[np.ndarray]:
        found = [self.load_episode(p) for p in sorted(self.s.log_dir.glob("ep_*.csv"))]
        return [e for e in found if e is not None]

    def __iter__(self):
        s = self.s
        episodes = self.load_all()
        self.rounds += 1
        rng = np.random.default_rng((s.seed, self.rounds))
        order = np.repeat(np.arange(len(episodes)), s.windows_per_episode)
        rng.shuffle(order)
        for k in order:
            ep = episodes[k]
            i = int(rng.integers(s.past, len(ep) - s.future))
            obs = ep[i - s.past:i]
            action = (ep[i:i + s.future, :6] - ep[i - 1, :6]) * 10.0
            yield torch.from_numpy(obs), torch.from_numpy(action)


class Policy(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.future = s.future
        self.norm = nn.BatchNorm1d(10)
        self.rnn = nn.GRU(10, s.hidden, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(s.hidden, s.hidden), nn.Tanh(), nn.Linear(s.hidden, s.future * 6))

    def forward(self, obs: Tensor) -> Tensor:
        x = self.norm(obs.transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(x)
        return self.head(h[:, -1]).view(-1, self.future, 6)


class Averager:
    """Exponential moving average of the policy, the one that goes on the robot."""

    def __init__(self, module: nn.Module, keep: float = 0.8):
        self.keep = keep
        self.state = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        for k, v in module.state_dict().items():
            if v.is_floating_point():
                self.state[k].mul_(self.keep).add_(v, alpha=1 - self.keep)


def warmup(step: int) -> float:
    return min(1.0, (step + 1) / 100)


def train(s: Settings) -> None:
    torch.manual_seed(s.seed)
    loader = DataLoader(TeleopWindows(s), batch_size=s.batch, num_workers=1, persistent_workers=True,
                        drop_last=True)
    policy = Policy(s)
    ema = Averager(policy)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=s.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, warmup)
    t0 = time.monotonic()
    seen = 0
    for epoch in range(s.epochs):
        policy.train()
        losses: list[float] = []
        for obs, action in loader:
            loss = nn.functional.huber_loss(policy(obs), action)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
            seen += len(obs)
            if len(losses) % 25 == 0:
                print(f"{time.monotonic() - t0:8.1f}s  epoch {epoch:3d}  samples {seen:8d}  "
                      f"loss {np.mean(losses[-25:]):.5f}", flush=True)
        ema.update(policy)
        torch.save(ema.state, s.log_dir / "policy.pt")
        print(f"--- epoch {epoch} mean {np.mean(losses):.5f}", flush=True)


if __name__ == "__main__":
    settings = Settings()
    record_episodes(settings)
    train(settings)
