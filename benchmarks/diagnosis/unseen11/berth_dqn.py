"""Double DQN that learns to bring a container ship alongside its berth.

The ship is a crude three-degree-of-freedom model (surge, sway, yaw) in the
harbour frame, with wind and current that change per episode. Actions: nine
combinations of engine order and rudder, plus bow thruster left / right.

    python berth_dqn.py --updates 3000
"""
import argparse
import collections
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RUN_DIR = os.path.join(tempfile.gettempdir(), "berth_dqn")
ACTIONS = [(e, r, 0.0) for e in (-0.5, 0.0, 0.6) for r in (-0.4, 0.0, 0.4)] + \
          [(0.0, 0.0, -1.0), (0.0, 0.0, 1.0)]


class HarbourEnv:
    """A fleet of independent ships, stepped together in numpy."""

    obs_dim = 12

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.state = np.zeros((n, 6))      # x y heading u v r
        self.wind = np.zeros((n, 2))
        self.t = np.zeros(n, int)
        self.reset(np.ones(n, bool))

    def reset(self, mask):
        k = int(mask.sum())
        if k:
            self.state[mask] = np.stack([
                self.rng.uniform(-8, -3, k), self.rng.uniform(1, 5, k),
                self.rng.uniform(-0.5, 0.5, k), self.rng.uniform(0.2, 0.8, k),
                np.zeros(k), np.zeros(k)], 1)
            self.wind[mask] = self.rng.normal(0, 0.03, (k, 2))
            self.t[mask] = 0

    def observe(self):
        x, y, h, u, v, r = self.state.T
        return np.stack([x / 8, y / 5, np.sin(h), np.cos(h), u, v, r * 4,
                         self.wind[:, 0] * 10, self.wind[:, 1] * 10,
                         np.hypot(x, y) / 8, np.arctan2(-y, -x) / math.pi,
                         self.t / 200], 1).astype(np.float32)

    def _potential(self):
        x, y, h, u, v, r = self.state.T
        return -(np.hypot(x, y) + 0.5 * np.abs(np.sin(h)) + 0.3 * np.hypot(u, v))

    def step(self, action):
        before = self._potential()
        eng, rud, bow = np.array(ACTIONS)[action].T
        x, y, h, u, v, r = self.state.T
        u = u + 0.2 * (eng - 0.3 * u * np.abs(u) + self.wind[:, 0])
        v = v + 0.2 * (0.15 * bow - 0.8 * v + self.wind[:, 1])
        r = r + 0.2 * (0.5 * rud * u + 0.1 * bow - 0.6 * r)
        h = h + 0.2 * r
        x = x + 0.2 * (u * np.cos(h) - v * np.sin(h))
        y = y + 0.2 * (u * np.sin(h) + v * np.cos(h))
        self.state = np.stack([x, y, h, u, v, r], 1)
        self.t += 1
        moored = (np.hypot(x, y) < 0.4) & (np.hypot(u, v) < 0.3)
        lost = (np.abs(x) > 12) | (y < -1) | (y > 8)
        reward = (self._potential() - before) + 5.0 * moored - 5.0 * lost - 0.01
        done = moored | lost
        nxt = self.observe()
        self.reset(done | (self.t >= 200))
        return nxt, reward.astype(np.float32), done.astype(np.float32), moored


class Replay:
    def __init__(self, size, obs_dim):
        self.obs = torch.zeros(size, obs_dim)
        self.nxt = torch.zeros(size, obs_dim)
        self.act = torch.zeros(size, dtype=torch.long)
        self.rew, self.done = torch.zeros(size), torch.zeros(size)
        self.size, self.ptr, self.full = size, 0, False

    def push(self, o, a, r, n, d):
        for row in zip(o, a, r, n, d):       # ring buffer, one transition at a time
            i = self.ptr
            self.obs[i] = torch.from_numpy(row[0])
            self.act[i] = int(row[1])
            self.rew[i] = float(row[2])
            self.nxt[i] = torch.from_numpy(row[3])
            self.done[i] = float(row[4])
            self.ptr = (self.ptr + 1) % self.size
            self.full |= self.ptr == 0

    def sample(self, n):
        i = torch.randint(self.size if self.full else self.ptr, (n,))
        return self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i]


class DuelingQ(nn.Module):
    def __init__(self, obs_dim, n_act, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(obs_dim, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU())
        self.value, self.adv = nn.Linear(width, 1), nn.Linear(width, n_act)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=4000)
    ap.add_argument("--batch", type=int, default=1024)
    ap.add_argument("--width", type=int, default=768)
    ap.add_argument("--ships", type=int, default=8)
    ap.add_argument("--gamma", type=float, default=0.98)
    ap.add_argument("--sync", type=int, default=250)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    os.makedirs(RUN_DIR, exist_ok=True)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = HarbourEnv(args.ships, rng)
    q = DuelingQ(env.obs_dim, len(ACTIONS), args.width)
    target = DuelingQ(env.obs_dim, len(ACTIONS), args.width)
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=3e-4)
    replay = Replay(60000, env.obs_dim)
    log = open(os.path.join(RUN_DIR, "progress.csv"), "w")
    log.write("update,loss,reward,moored,seconds\n")

    obs = env.observe()
    for _ in range(150):                     # random warm-up
        act = rng.integers(0, len(ACTIONS), args.ships)
        nxt, rew, done, _ = env.step(act)
        replay.push(obs, act, rew, nxt, done)
        obs = env.observe()

    recent, arrivals = collections.deque(maxlen=500), 0
    t0 = time.time()
    for update in range(1, args.updates + 1):
        eps = max(0.05, 1.0 - update / 1500)
        with torch.no_grad():
            act = q(torch.from_numpy(obs)).argmax(1).numpy()
        act = np.where(rng.random(args.ships) < eps, rng.integers(0, len(ACTIONS), args.ships), act)
        nxt, rew, done, moored = env.step(act)
        replay.push(obs, act, rew, nxt, done)
        obs = env.observe()
        recent.append(float(rew.mean()))
        arrivals += int(moored.sum())

        s, a, r, s2, d = replay.sample(args.batch)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            goal = r + args.gamma * (1 - d) * target(s2).gather(1, best)[:, 0]
        value = q(s).gather(1, a[:, None])[:, 0]
        loss = F.smooth_l1_loss(value, goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()

        log.write(f"{update},{loss.item():.5f},{np.mean(recent):.4f},{arrivals},{time.time() - t0:.1f}\n")
        log.flush()
        if update % args.sync == 0:
            target.load_state_dict(q.state_dict())
            torch.save({"q": q.state_dict(), "opt": opt.state_dict(), "update": update},
                       os.path.join(RUN_DIR, "last.pt"))
        if update % 50 == 0:
            print(f"{update:5d} eps {eps:.2f} loss {loss.item():.4f} "
                  f"reward {np.mean(recent):+.3f} moored {arrivals}", flush=True)
    log.close()


if __name__ == "__main__":
    main()
