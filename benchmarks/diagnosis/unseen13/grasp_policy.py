"""Behaviour cloning for the bin-picking arm.

An episode clip is a short stack of wrist-camera frames plus joint states; the policy
predicts the expert's next end-effector twist for every frame of the clip.
"""
from __future__ import annotations

import logging
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

LOG = logging.getLogger("grasp")


@dataclass
class DataConfig:
    root: Path = Path(tempfile.gettempdir()) / "grasp_policy"
    episodes: int = 300
    length: int = 60
    image: int = 24
    joints: int = 7
    clip: int = 20


@dataclass
class PolicyConfig:
    channels: tuple = (8, 16, 32)
    feature: int = 48
    hidden: int = 64
    action: int = 6


@dataclass
class TrainConfig:
    batch: int = 8
    steps: int = 4000
    lr: float = 1e-3
    threads: int = 1
    log_interval: int = 25
    seed: int = 1


class EpisodeRecorder:
    """Renders scripted demonstrations in a toy simulator (a bright target on a noisy bin)."""

    def __init__(self, cfg: DataConfig):
        self.cfg = cfg

    def record(self) -> Path:
        cfg = self.cfg
        path = cfg.root / "demos.npz"
        if path.exists():
            return path
        LOG.info("recording %d demonstrations", cfg.episodes)
        rng = np.random.default_rng(0)
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, cfg.image)] * 2, indexing="ij"), -1)
        target = rng.uniform(-0.7, 0.7, (cfg.episodes, 1, 2))
        gripper = rng.uniform(-1, 1, (cfg.episodes, 1, 2))
        t = np.linspace(0, 1, cfg.length)[None, :, None]
        position = gripper + (target - gripper) * t
        offset = target - position
        blob = np.exp(-20 * ((grid - offset[:, :, None, None, :]) ** 2).sum(-1))
        frames = np.stack([blob, 0.5 * blob, 1 - blob], 2) * 200 + rng.integers(0, 50, blob.shape)[:, :, None]
        joints = rng.normal(size=(cfg.episodes, cfg.length, cfg.joints)) * 0.05
        joints[..., :2] += position
        action = np.concatenate([offset, np.tanh(3 * offset), offset * joints[..., 2:4]], -1)
        cfg.root.mkdir(parents=True, exist_ok=True)
        part = cfg.root / f"part{os.getpid()}.npz"
        np.savez(part, frames=frames.astype(np.uint8), joints=joints.astype(np.float32), action=action.astype(np.float32))
        part.rename(path)
        return path


class ClipDataset(Dataset):
    def __init__(self, path: Path, clip: int):
        archive = np.load(path)
        self.frames, self.joints, self.action = (archive[k] for k in ("frames", "joints", "action"))
        self.clip = clip
        self.starts = self.frames.shape[1] - clip + 1

    def __len__(self):
        return len(self.frames) * self.starts

    def __getitem__(self, i):
        episode, start = divmod(i, self.starts)
        window = slice(start, start + self.clip)
        return (
            torch.from_numpy(self.frames[episode, window]),
            torch.from_numpy(self.joints[episode, window]),
            torch.from_numpy(self.action[episode, window]),
        )


class WristCameraEncoder(nn.Module):
    """Small conv net, one camera frame to one feature vector."""

    def __init__(self, cfg: PolicyConfig):
        super().__init__()
        blocks, c = [], 3
        for width in cfg.channels:
            blocks += [nn.Conv2d(c, width, 3, stride=2, padding=1), nn.GroupNorm(4, width), nn.SiLU()]
            c = width
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.LazyLinear(cfg.feature)

    def forward(self, image):
        return self.project(self.blocks(image).flatten(1))


class GraspPolicy(nn.Module):
    def __init__(self, cfg: PolicyConfig, joints: int):
        super().__init__()
        self.camera = WristCameraEncoder(cfg)
        self.fuse = nn.Sequential(nn.Linear(cfg.feature + joints, cfg.hidden), nn.SiLU(), nn.LayerNorm(cfg.hidden))
        self.memory = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.action = nn.Linear(cfg.hidden, cfg.action)

    def observe(self, image, joints):
        """Observation embedding of a single control tick, shared with the on-robot runtime."""
        image = image.float() / 255.0
        return self.fuse(torch.cat([self.camera(image), joints], dim=-1))

    def forward(self, frames, joints):
        ticks = [self.observe(frames[:, t], joints[:, t]) for t in range(frames.shape[1])]
        memory, _ = self.memory(torch.stack(ticks, dim=1))
        return self.action(memory)


class Runner:
    def __init__(self, data: DataConfig, policy: PolicyConfig, train: TrainConfig):
        torch.manual_seed(train.seed)
        self.cfg = train
        clips = ClipDataset(EpisodeRecorder(data).record(), data.clip)
        self.loader = DataLoader(clips, batch_size=train.batch, shuffle=True, drop_last=True)
        self.policy = GraspPolicy(policy, data.joints)
        self.policy(*[x[None] for x in clips[0][:2]])  # materialise lazy layers
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=train.lr)
        self.loss = nn.SmoothL1Loss()
        LOG.info("clips %d, config %s", len(clips), asdict(train))

    def batches(self):
        while True:
            yield from self.loader

    def run(self):
        running = 0.0
        for step, (frames, joints, expert) in zip(range(1, self.cfg.steps + 1), self.batches()):
            loss = self.loss(self.policy(frames, joints), expert)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 5.0)
            self.optimizer.step()
            running += loss.item()
            if step % self.cfg.log_interval == 0:
                LOG.info("step %d imitation loss %.5f", step, running / self.cfg.log_interval)
                running = 0.0


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="[%(asctime)s] %(name)s: %(message)s")
    Runner(DataConfig(), PolicyConfig(), TrainConfig()).run()
