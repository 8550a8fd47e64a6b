"""Discrete SAC for quay crane split at a container terminal.

A small vectorised terminal simulator: every env holds `n_berths` vessels with
remaining moves, a yard occupancy and a truck queue. The agent picks which berth
gets the floating crane. Reward is minus the weighted vessel delay.

    python quay_crane_sac.py --updates 4000
"""
import argparse
import collections
import os
import queue
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = os.path.join(tempfile.gettempdir(), "quay_crane_sac")


def load_vessel_calls(n=20000, seed=3):
    """Arrival book of the terminal: (moves, priority, hours late)."""
    path = os.path.join(ROOT, "vessel_calls.npz")
    if not os.path.exists(path):
        os.makedirs(ROOT, exist_ok=True)
        rng = np.random.default_rng(seed)
        moves = rng.gamma(3.0, 0.25, n)
        prio = rng.choice([1.0, 1.5, 3.0], n, p=[0.6, 0.3, 0.1])
        late = rng.exponential(0.2, n)
        np.savez(path, calls=np.stack([moves, prio, late], 1).astype(np.float32))
    return np.load(path)["calls"]


class TerminalVecEnv:
    def __init__(self, calls, n_envs=32, n_berths=12, seed=0):
        self.calls, self.n, self.b = calls, n_envs, n_berths
        self.rng = np.random.default_rng(seed)
        self.state = self._draw((n_envs, n_berths))
        self.yard = np.full((n_envs, 4), 0.5, np.float32)

    @property
    def obs_dim(self):
        return self.b * 3 + 4

    def _draw(self, shape):
        return self.calls[self.rng.integers(0, len(self.calls), shape)].copy()

    def obs(self):
        return np.concatenate([self.state.reshape(self.n, -1), self.yard], 1)

    def step(self, action):
        rate = np.full((self.n, self.b), 0.04, np.float32)
        rate[np.arange(self.n), action] += 0.18
        rate *= 1.2 - self.yard.mean(1, keepdims=True)
        self.state[..., 0] -= rate
        self.state[..., 2] += 0.02
        cost = (self.state[..., 1] * self.state[..., 2]).mean(1)
        done = self.state[..., 0] <= 0
        k = int(done.sum())
        if k:
            self.state[done] = self._draw((k,))
        self.yard += 0.05 * self.rng.standard_normal(self.yard.shape).astype(np.float32)
        np.clip(self.yard, 0.1, 0.9, out=self.yard)
        return self.obs(), -cost.astype(np.float32), k


class ReplayBuffer:
    def __init__(self, capacity, obs_dim):
        self.o = torch.zeros(capacity, obs_dim)
        self.o2 = torch.zeros(capacity, obs_dim)
        self.a = torch.zeros(capacity, dtype=torch.long)
        self.r = torch.zeros(capacity)
        self.capacity, self.ptr, self.size = capacity, 0, 0

    def add(self, o, a, r, o2):
        idx = (torch.arange(len(a)) + self.ptr) % self.capacity
        self.o[idx], self.o2[idx] = torch.from_numpy(o), torch.from_numpy(o2)
        self.a[idx], self.r[idx] = torch.from_numpy(a), torch.from_numpy(r)
        self.ptr = (self.ptr + len(a)) % self.capacity
        self.size = min(self.capacity, self.size + len(a))

    def sample(self, batch):
        idx = torch.randint(0, self.size, (batch,))
        return self.o[idx], self.a[idx], self.r[idx], self.o2[idx]


def mlp(i, o, h=256):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class StatsCollector(threading.Thread):
    """Gathers what the rollouts report and keeps moving averages per topic."""

    def __init__(self, window=200):
        super().__init__(daemon=True, name="stats")
        self.inbox = queue.Queue()
        self.window = window
        self.values = collections.defaultdict(lambda: collections.deque(maxlen=window))
        self.running = True

    def run(self):
        while self.running:
            for _ in range(self.inbox.qsize()):
                topic, value = self.inbox.get()
                self.values[topic].append(value)

    def mean(self, topic):
        v = list(self.values[topic])
        return sum(v) / max(len(v), 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--updates", type=int, default=20000)
    p.add_argument("--batch-size", type=int, default=512)
    p.add_argument("--gamma", type=float, default=0.98)
    p.add_argument("--tau", type=float, default=0.01)
    p.add_argument("--alpha", type=float, default=0.05)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--warmup", type=int, default=40)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch.manual_seed(args.seed)

    env = TerminalVecEnv(load_vessel_calls(), seed=args.seed)
    buf = ReplayBuffer(100_000, env.obs_dim)
    actor = mlp(env.obs_dim, env.b)
    q1, q2 = mlp(env.obs_dim, env.b), mlp(env.obs_dim, env.b)
    t1, t2 = mlp(env.obs_dim, env.b), mlp(env.obs_dim, env.b)
    t1.load_state_dict(q1.state_dict())
    t2.load_state_dict(q2.state_dict())
    critics = list(q1.parameters()) + list(q2.parameters())
    targets = list(t1.parameters()) + list(t2.parameters())
    opt_q = torch.optim.Adam(critics, lr=args.lr)
    opt_pi = torch.optim.Adam(actor.parameters(), lr=args.lr)

    stats = StatsCollector()
    stats.start()

    def rollout():
        o = env.obs()
        with torch.no_grad():
            a = torch.distributions.Categorical(logits=actor(torch.from_numpy(o))).sample().numpy()
        o2, r, served = env.step(a)
        buf.add(o, a, r, o2)
        stats.inbox.put(("reward", float(r.mean())))
        stats.inbox.put(("served", served))

    for _ in range(args.warmup):
        rollout()

    t0 = time.time()
    for update in range(1, args.updates + 1):
        rollout()
        o, a, r, o2 = buf.sample(args.batch_size)

        with torch.no_grad():
            logp2 = F.log_softmax(actor(o2), 1)
            qn = torch.minimum(t1(o2), t2(o2))
            y = r + args.gamma * (logp2.exp() * (qn - args.alpha * logp2)).sum(1)
        qa1 = q1(o).gather(1, a[:, None]).squeeze(1)
        qa2 = q2(o).gather(1, a[:, None]).squeeze(1)
        q_loss = F.mse_loss(qa1, y) + F.mse_loss(qa2, y)
        opt_q.zero_grad()
        q_loss.backward()
        opt_q.step()

        logp = F.log_softmax(actor(o), 1)
        with torch.no_grad():
            q = torch.minimum(q1(o), q2(o))
        pi_loss = (logp.exp() * (args.alpha * logp - q)).sum(1).mean()
        opt_pi.zero_grad()
        pi_loss.backward()
        opt_pi.step()

        with torch.no_grad():
            torch._foreach_lerp_(targets, critics, args.tau)

        stats.inbox.put(("q_loss", q_loss.item()))
        if update % 100 == 0:
            print(f"{update:6d}  q_loss {stats.mean('q_loss'):.4f}  reward {stats.mean('reward'):.3f}  "
                  f"served {stats.mean('served'):.2f}  {update / (time.time() - t0):.1f} upd/s", flush=True)

    stats.running = False
    torch.save(actor.state_dict(), os.path.join(ROOT, "actor.pt"))


if __name__ == "__main__":
    main()
