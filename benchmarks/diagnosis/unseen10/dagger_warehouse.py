# DAgger for a warehouse robot on a grid, single file implementation
import os
import random
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    seed: int = 1
    torch_deterministic: bool = True
    total_iterations: int = 60000
    learning_rate: float = 3e-4
    num_envs: int = 4
    buffer_size: int = 10000
    batch_size: int = 160
    learning_starts: int = 2000
    grid: int = 13
    start_e: float = 1.0
    end_e: float = 0.1
    decay_iterations: int = 4000


class WarehouseEnv:
    """Bring the carrier to the shelf; racks block the way, other carriers move randomly."""

    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, n, layouts, rng):
        self.n, self.layouts, self.rng = n, layouts, rng
        self.reset()

    def _free(self):
        while True:
            p = tuple(int(v) for v in self.rng.integers(0, self.n, 2))
            if not self.racks[p]:
                return p

    def reset(self):
        k = int(self.rng.integers(len(self.layouts)))
        self.racks = self.layouts[k]
        self.goal, self.agent = self._free(), self._free()
        self.others = [self._free() for _ in range(3)]
        self.dist = self._distances()
        self.t = 0
        return self.observe()

    def _distances(self):
        d = np.full((self.n, self.n), 999, np.int32)
        d[self.goal] = 0
        front = [self.goal]
        while front:
            nxt = []
            for y, x in front:
                for dy, dx in self.MOVES:
                    v, u = y + dy, x + dx
                    if 0 <= v < self.n and 0 <= u < self.n and not self.racks[v, u] and d[v, u] == 999:
                        d[v, u] = d[y, x] + 1
                        nxt.append((v, u))
            front = nxt
        return d

    def observe(self):
        o = np.zeros((5, self.n, self.n), dtype=np.float32)
        o[0][self.agent] = 1
        o[1][self.goal] = 1
        o[2] = self.racks
        for p in self.others:
            o[3][p] = 1
        o[4] = self.t / 64
        return o

    def expert(self):
        best, act = 9999, 0
        for a, (dy, dx) in enumerate(self.MOVES):
            v, u = self.agent[0] + dy, self.agent[1] + dx
            if 0 <= v < self.n and 0 <= u < self.n and self.dist[v, u] < best:
                best, act = self.dist[v, u], a
        return act

    def _move(self, p, a):
        v, u = p[0] + self.MOVES[a][0], p[1] + self.MOVES[a][1]
        return (v, u) if 0 <= v < self.n and 0 <= u < self.n and not self.racks[v, u] else p

    def step(self, a):
        self.agent = self._move(self.agent, a)
        self.others = [self._move(p, int(self.rng.integers(4))) for p in self.others]
        self.t += 1
        done = self.agent == self.goal or self.t >= 64
        return self.observe(), float(self.agent == self.goal), done


def load_layouts(n, folder):
    path = os.path.join(folder, "layouts.npy")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        rng = np.random.default_rng(0)
        maps = np.zeros((12, n, n), bool)
        for m in maps:
            for col in range(2, n - 1, 3):
                top = int(rng.integers(1, 4))
                m[top:top + int(rng.integers(5, 9)), col] = True
        np.save(path, maps)
    return np.load(path)


class DemoBuffer:
    def __init__(self, capacity):
        self.capacity, self.storage, self.pos = capacity, [], 0

    def add(self, obs, action):
        if len(self.storage) < self.capacity:
            self.storage.append(None)
        self.storage[self.pos] = (obs, action)
        self.pos = (self.pos + 1) % self.capacity

    def sample(self, batch_size):
        picks = random.sample(range(len(self.storage)), batch_size)
        obs, actions = zip(*[self.storage[i] for i in picks])
        return torch.tensor(obs), torch.tensor(actions)


class Policy(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(5, 24, 3, padding=1), nn.ReLU(),
            nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(24 * ((n + 1) // 2) ** 2, 128), nn.ReLU(), nn.Linear(128, 4),
        )

    def forward(self, x):
        return self.network(x)


def linear_schedule(start_e, end_e, duration, t):
    return max((end_e - start_e) / duration * t + start_e, end_e)


if __name__ == "__main__":
    args = Args()
    run_name = f"{args.exp_name}__{args.seed}"
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = args.torch_deterministic

    layouts = load_layouts(args.grid, os.path.join(tempfile.gettempdir(), "dagger_warehouse"))
    envs = [WarehouseEnv(args.grid, layouts, np.random.default_rng(args.seed + i)) for i in range(args.num_envs)]
    policy = Policy(args.grid)
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.learning_rate, eps=1e-5)
    rb = DemoBuffer(args.buffer_size)
    obs = [e.reset() for e in envs]
    returns, start_time, it = [], time.time(), 0
    while it < args.total_iterations:
        beta = linear_schedule(args.start_e, args.end_e, args.decay_iterations, it)
        with torch.no_grad():
            greedy = policy(torch.from_numpy(np.stack(obs))).argmax(1).numpy()
        for k, env in enumerate(envs):
            label = env.expert()
            rb.add(obs[k], label)
            obs[k], reward, done = env.step(label if random.random() < beta else int(greedy[k]))
            if done:
                returns.append(reward)
                obs[k] = env.reset()
        if len(rb.storage) < args.learning_starts:
            continue
        b_obs, b_actions = rb.sample(args.batch_size)
        loss = F.cross_entropy(policy(b_obs), b_actions)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        it += 1
        if it % 100 == 0:
            print(f"iteration={it}, loss={loss.item():.4f}, success={np.mean(returns[-100:]):.2f}, "
                  f"SPS={int(it * args.num_envs / (time.time() - start_time))}", flush=True)
