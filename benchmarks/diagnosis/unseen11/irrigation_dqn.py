"""Double DQN for drip irrigation in a tomato greenhouse.

The agent is warm-started from a year of logged rule-based control (the grower's
tensiometer thresholds) and keeps learning while it drives 32 simulated bays.
"""
import argparse
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--num-bays", type=int, default=32)
    p.add_argument("--total-updates", type=int, default=8000)
    p.add_argument("--buffer-size", type=int, default=1_500_000)
    p.add_argument("--batch-size", type=int, default=384)
    p.add_argument("--gamma", type=float, default=0.985)
    p.add_argument("--tau", type=float, default=0.005)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--start-e", type=float, default=0.3)
    p.add_argument("--end-e", type=float, default=0.02)
    p.add_argument("--exploration-fraction", type=float, default=0.5)
    p.add_argument("--hidden", type=int, default=256)
    return p.parse_args()


class GreenhouseBays:
    """Vectorised bucket model: substrate water, EC, canopy and weather."""

    OBS, ACTIONS = 10, 5
    DOSE = np.array([0.0, 0.4, 0.8, 1.4, 2.2], dtype=np.float32)  # l / m2

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.reset()

    def reset(self):
        r = self.rng
        self.water = r.uniform(5.0, 9.0, self.n).astype(np.float32)
        self.ec = r.uniform(2.0, 4.0, self.n).astype(np.float32)
        self.lai = r.uniform(0.8, 3.0, self.n).astype(np.float32)
        self.hour = r.integers(0, 24, self.n).astype(np.float32)
        self.cloud = r.uniform(0, 1, self.n).astype(np.float32)
        return self.obs()

    def obs(self):
        ang = 2 * np.pi * self.hour / 24
        sun = self.sun()
        return np.stack([
            self.water / 10, self.ec / 5, self.lai / 4, np.sin(ang), np.cos(ang), sun,
            self.cloud, self.water * self.ec / 40, sun * self.lai / 4, np.ones_like(sun),
        ], axis=1).astype(np.float32)

    def sun(self):
        s = np.clip(np.sin(np.pi * (self.hour - 6) / 12), 0, None)
        return (s * (1 - 0.7 * self.cloud)).astype(np.float32)

    def step(self, action):
        dose = self.DOSE[action]
        et = 0.05 + 0.45 * self.sun() * self.lai / 3
        salt = self.ec * self.water + 2.6 * dose
        total = self.water + dose
        drain = np.clip(total - 10.0, 0, None)
        self.ec = np.clip(salt / np.maximum(total, 0.5), 1.0, 9.0)
        self.water = np.clip(total - drain - et, 0.5, 10.0)
        stress = np.clip(4.5 - self.water, 0, None) + 0.5 * np.clip(self.ec - 4.0, 0, None)
        reward = et * 2 - 0.6 * stress - 0.15 * dose - 0.5 * drain
        self.lai = np.clip(self.lai + 0.003 * (1 - stress), 0.5, 4.0)
        self.hour = (self.hour + 1) % 24
        self.cloud = np.clip(self.cloud + self.rng.normal(0, 0.08, self.n), 0, 1).astype(np.float32)
        return self.obs(), reward.astype(np.float32)


class ReplayBuffer:
    def __init__(self, capacity, obs_dim):
        self.capacity = capacity
        self.observations = np.zeros((capacity, obs_dim), dtype=np.float32)
        self.next_observations = np.zeros((capacity, obs_dim), dtype=np.float32)
        self.actions = np.zeros(capacity, dtype=np.int64)
        self.rewards = np.zeros(capacity, dtype=np.float32)
        self.pos, self.size = 0, 0

    def add(self, obs, action, reward, next_obs):
        n = len(action)
        at = (self.pos + np.arange(n)) % self.capacity
        self.observations[at] = obs
        self.actions[at] = action
        self.rewards[at] = reward
        self.next_observations[at] = next_obs
        self.pos = (self.pos + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, batch_size):
        idxs = np.random.choice(self.size, size=batch_size, replace=False)
        return (
            torch.from_numpy(self.observations[idxs]),
            torch.from_numpy(self.actions[idxs]),
            torch.from_numpy(self.rewards[idxs]),
            torch.from_numpy(self.next_observations[idxs]),
        )


class QNetwork(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
        )
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, n_actions)

    def forward(self, x):
        h = self.trunk(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


def logged_year(capacity):
    """Rule-based control of 500 bays, cached on disk."""
    root = os.path.join(tempfile.gettempdir(), "irrigation_dqn")
    path = os.path.join(root, f"logs_{capacity}.npz")
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        rng = np.random.default_rng(7)
        env = GreenhouseBays(500, rng)
        obs, rows = env.reset(), []
        for _ in range(capacity // env.n):
            act = np.where(env.water < 6.0, 3, 0)
            explore = rng.random(env.n) < 0.15
            act = np.where(explore, rng.integers(0, env.ACTIONS, env.n), act)
            nxt, rew = env.step(act)
            rows.append((obs, act, rew, nxt))
            obs = nxt
        o, a, r, n = (np.concatenate(c) for c in zip(*rows))
        np.savez(path, obs=o, act=a, rew=r, nxt=n)
    z = np.load(path)
    return z["obs"], z["act"], z["rew"], z["nxt"]


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = GreenhouseBays(args.num_bays, np.random.default_rng(args.seed))
    q = QNetwork(env.OBS, env.ACTIONS, args.hidden)
    target = QNetwork(env.OBS, env.ACTIONS, args.hidden)
    target.load_state_dict(q.state_dict())
    for p in target.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=args.lr)

    rb = ReplayBuffer(args.buffer_size, env.OBS)
    rb.add(*logged_year(args.buffer_size))
    print(f"replay buffer: {rb.size} transitions")

    obs = env.reset()
    returns, start = 0.0, time.time()
    for update in range(1, args.total_updates + 1):
        frac = min(1.0, update / (args.exploration_fraction * args.total_updates))
        eps = args.start_e + frac * (args.end_e - args.start_e)
        with torch.no_grad():
            actions = q(torch.from_numpy(obs)).argmax(dim=1).numpy()
        explore = np.random.rand(env.n) < eps
        actions[explore] = np.random.randint(0, env.ACTIONS, explore.sum())
        next_obs, rewards = env.step(actions)
        rb.add(obs, actions, rewards, next_obs)
        obs = next_obs
        returns = 0.99 * returns + 0.01 * rewards.mean()

        o, a, r, o2 = rb.sample(args.batch_size)
        with torch.no_grad():
            best = q(o2).argmax(dim=1, keepdim=True)
            td_target = r + args.gamma * target(o2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(q(o).gather(1, a.unsqueeze(1)).squeeze(1), td_target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(q.parameters()), args.tau)

        if update % 100 == 0:
            sps = update / (time.time() - start)
            print(f"update {update}  td_loss {loss.item():.4f}  avg_reward {returns:.3f}  eps {eps:.2f}  SPS {sps:.1f}", flush=True)


if __name__ == "__main__":
    main()
