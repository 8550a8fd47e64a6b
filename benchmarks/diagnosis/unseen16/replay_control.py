"""Double DQN with prioritised replay on logged transitions plus fresh play in a cart-with-pole simulation."""
import tempfile
import time
from collections import deque
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = Path(tempfile.gettempdir()) / "replay_control_data"


@dataclass
class Config:
    logged: int = 400_000
    capacity: int = 500_000
    batch_size: int = 128
    gamma: float = 0.99
    alpha: float = 0.6
    beta: float = 0.4
    lr: float = 5e-4
    tau: float = 0.005
    hidden: int = 192
    updates: int = 120_000
    play_every: int = 4
    log_every: int = 500
    seed: int = 5


class CartPole:
    actions = np.linspace(-10, 10, 5)

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.observe()

    def observe(self):
        x, v, a, w = self.s
        return np.array([x, v, np.sin(a), np.cos(a), w, self.t / 500], np.float32)

    def step(self, action):
        x, v, a, w = self.s
        sin, cos = np.sin(a), np.cos(a)
        temp = (self.actions[action] + 0.05 * w * w * sin) / 1.1
        aa = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        self.s = self.s + 0.02 * np.array([v, temp - 0.05 * aa * cos / 1.1, w, aa])
        self.t += 1
        fell = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21
        return self.observe(), 0.0 if fell else 1.0, fell, fell or self.t >= 500


def record_log(cfg):
    path = FOLDER / "transitions.h5"
    if path.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    env, rows, obs = CartPole(rng), [], None
    for _ in range(cfg.logged // 4):
        if obs is None:
            obs = env.reset()
        lean = env.s[2] + 0.4 * env.s[3] + 0.05 * env.s[0]
        action = int(np.clip(round(2 + 12 * lean), 0, 4)) if rng.random() < 0.6 else int(rng.integers(5))
        nxt, reward, dead, over = env.step(action)
        rows.append((obs, action, reward, nxt, dead))
        obs = None if over else nxt
    obs, act, rew, nxt, done = (np.array(c) for c in zip(*rows))
    with h5py.File(path, "w") as f:
        for name, value in dict(obs=obs, nxt=nxt).items():
            noisy = np.concatenate([value + 0.003 * rng.normal(size=value.shape) * (k > 0) for k in range(4)])
            f.create_dataset(name, data=noisy.astype(np.float32))
        for name, value in dict(act=act, rew=rew, done=done).items():
            f.create_dataset(name, data=np.tile(value, 4).astype(np.float32))
    return path


class PrioritizedReplay:
    def __init__(self, cfg, obs_dim, rng):
        self.cfg, self.rng = cfg, rng
        n = cfg.capacity
        self.obs, self.nxt = np.zeros((n, obs_dim), np.float32), np.zeros((n, obs_dim), np.float32)
        self.act, self.rew, self.done = np.zeros(n, np.int64), np.zeros(n, np.float32), np.zeros(n, np.float32)
        self.priority = np.zeros(n, np.float64)
        self.size, self.head, self.top = 0, 0, 1.0

    def load(self, path):
        with h5py.File(path) as f:
            n = len(f["act"])
            for name in ("obs", "nxt", "act", "rew", "done"):
                getattr(self, name)[:n] = f[name][:]
        self.priority[:n] = self.top
        self.size = self.head = n

    def add(self, obs, act, rew, nxt, done):
        i = self.head
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i] = obs, act, rew, nxt, done
        self.priority[i] = self.top
        self.head = (i + 1) % self.cfg.capacity
        self.size = min(self.size + 1, self.cfg.capacity)

    def sample(self, beta):
        scaled = self.priority[:self.size] ** self.cfg.alpha
        probs = scaled / scaled.sum()
        idx = self.rng.choice(self.size, self.cfg.batch_size, p=probs)
        weights = (self.size * probs[idx]) ** -beta
        weights /= weights.max()
        batch = (self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx], self.done[idx], weights.astype(np.float32))
        return idx, [torch.from_numpy(b) for b in batch]

    def update(self, idx, errors):
        self.priority[idx] = np.abs(errors) + 1e-4
        self.top = max(self.top, self.priority[idx].max())


class Dueling(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, n_actions)

    def forward(self, x):
        h = self.body(x)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(1, keepdim=True)


class Agent:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.rng = np.random.default_rng(cfg.seed + 1)
        self.env = CartPole(self.rng)
        self.obs = self.env.reset()
        self.buffer = PrioritizedReplay(cfg, len(self.obs), self.rng)
        self.buffer.load(record_log(cfg))
        self.online = Dueling(len(self.obs), len(CartPole.actions), cfg.hidden)
        self.target = deepcopy(self.online).requires_grad_(False)
        self.opt = torch.optim.Adam(self.online.parameters(), cfg.lr)
        self.returns, self.ret = deque(maxlen=20), 0.0

    @torch.no_grad()
    def play(self, eps):
        act = self.online(torch.from_numpy(self.obs)[None]).argmax(1).item()
        if self.rng.random() < eps:
            act = int(self.rng.integers(len(CartPole.actions)))
        nxt, rew, dead, over = self.env.step(act)
        self.buffer.add(self.obs, act, rew, nxt, float(dead))
        self.ret += rew
        self.obs = nxt
        if over:
            self.returns.append(self.ret)
            self.ret, self.obs = 0.0, self.env.reset()

    def learn(self, beta):
        idx, (obs, act, rew, nxt, done, weight) = self.buffer.sample(beta)
        with torch.no_grad():
            best = self.online(nxt).argmax(1, keepdim=True)
            goal = rew + self.cfg.gamma * (1 - done) * self.target(nxt).gather(1, best).squeeze(1)
        q = self.online(obs).gather(1, act[:, None]).squeeze(1)
        loss = (weight * F.smooth_l1_loss(q, goal, reduction="none")).mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.opt.step()
        self.buffer.update(idx, (goal - q).detach().numpy())
        with torch.no_grad():
            for t, p in zip(self.target.parameters(), self.online.parameters()):
                t.lerp_(p, self.cfg.tau)
        return loss.item()

    def run(self):
        start, losses = time.time(), deque(maxlen=self.cfg.log_every)
        for step in range(1, self.cfg.updates + 1):
            share = step / self.cfg.updates
            if step % self.cfg.play_every == 0:
                self.play(max(0.05, 0.3 * (1 - share)))
            losses.append(self.learn(self.cfg.beta + (1 - self.cfg.beta) * share))
            if step % self.cfg.log_every == 0:
                print(f"update {step} loss {np.mean(losses):.4f} return {np.mean(self.returns or [0]):.1f} "
                      f"{step / (time.time() - start):.1f} updates/s", flush=True)


if __name__ == "__main__":
    Agent(Config()).run()
