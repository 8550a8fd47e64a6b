"""Actor-critic for a fleet of warehouse robots that share one policy.

Each robot is on a grid, sees a few local features and must reach its own
shelf while keeping out of the others' way.
"""
import argparse
import collections
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

MOVES = np.array([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)])


class Warehouse:
    def __init__(self, robots, side, seed):
        self.n, self.side = robots, side
        self.rng = np.random.default_rng(seed)
        self.shelves = self.rng.random((side, side)) < 0.1
        self.pos = self.rng.integers(0, side, (robots, 2))
        self.goal = self.rng.integers(0, side, (robots, 2))

    def crowd(self):
        grid = np.zeros((self.side + 4, self.side + 4), np.float32)
        np.add.at(grid, (self.pos[:, 0] + 2, self.pos[:, 1] + 2), 1.0)
        return grid

    def observe(self):
        grid = self.crowd()
        walls = np.pad(self.shelves, 2, constant_values=True).astype(np.float32)
        rows = []
        for (y, x), (gy, gx) in zip(self.pos, self.goal):
            near = grid[y:y + 5, x:x + 5].ravel()
            wall = walls[y:y + 5, x:x + 5].ravel()
            delta = np.array([gy - y, gx - x], np.float32) / self.side
            rows.append(np.concatenate([near, wall, delta, np.sign(delta)]))
        return np.stack(rows).astype(np.float32)

    def step(self, actions):
        before = np.abs(self.goal - self.pos).sum(1)
        nxt = np.clip(self.pos + MOVES[actions], 0, self.side - 1)
        blocked = self.shelves[nxt[:, 0], nxt[:, 1]]
        nxt[blocked] = self.pos[blocked]
        self.pos = nxt
        after = np.abs(self.goal - self.pos).sum(1)
        reward = 0.1 * (before - after).astype(np.float32) - 0.02 * blocked
        grid = self.crowd()
        reward -= 0.05 * (grid[self.pos[:, 0] + 2, self.pos[:, 1] + 2] > 1)
        done = after == 0
        reward[done] += 1.0
        self.goal[done] = self.rng.integers(0, self.side, (int(done.sum()), 2))
        return reward.astype(np.float32), done


class RobotBrain(nn.Module):
    def __init__(self, obs, hidden):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, len(MOVES))
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.actor(h), self.critic(h).squeeze(-1)


def act(brain, obs):
    """Sample an action for every robot; returns actions, log-probs, values, entropies."""
    actions, logps, values, entropies = [], [], [], []
    for robot in range(len(obs)):
        logits, value = brain(obs[robot])
        dist = Categorical(logits=logits)
        a = dist.sample()
        actions.append(a)
        logps.append(dist.log_prob(a))
        values.append(value)
        entropies.append(dist.entropy())
    return torch.stack(actions), torch.stack(logps), torch.stack(values), torch.stack(entropies)


def discounted(rewards, last_value, gamma):
    out, running = [], last_value
    for r in reversed(rewards):
        running = r + gamma * running
        out.append(running)
    return torch.stack(out[::-1])


def train(args):
    torch.manual_seed(args.seed)
    env = Warehouse(args.robots, args.side, args.seed)
    obs = torch.from_numpy(env.observe())
    brain = RobotBrain(obs.shape[1], args.hidden)
    opt = torch.optim.RMSprop(brain.parameters(), lr=args.lr)
    returns = collections.deque(maxlen=50)
    delivered, start = 0, time.time()

    for update in range(1, args.updates + 1):
        logps, values, entropies, rewards = [], [], [], []
        for _ in range(args.horizon):
            a, logp, value, entropy = act(brain, obs)
            reward, done = env.step(a.numpy())
            delivered += int(done.sum())
            obs = torch.from_numpy(env.observe())
            logps.append(logp)
            values.append(value)
            entropies.append(entropy)
            rewards.append(torch.from_numpy(reward))
        with torch.no_grad():
            _, last = brain(obs)
        target = discounted(rewards, last, args.gamma)
        logps, values, entropies = map(torch.stack, (logps, values, entropies))
        adv = (target - values).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        loss = -(logps * adv).mean() + 0.5 * (target - values).pow(2).mean() - args.beta * entropies.mean()

        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(brain.parameters(), 0.5)
        opt.step()
        returns.append(torch.stack(rewards).mean().item())
        if update % 10 == 0:
            rate = update / (time.time() - start)
            print(f"update {update} loss {loss.item():.4f} reward {np.mean(returns):.4f} "
                  f"delivered {delivered} ({rate:.2f} updates/s)", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--robots", type=int, default=12)
    ap.add_argument("--side", type=int, default=20)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--horizon", type=int, default=8)
    ap.add_argument("--updates", type=int, default=8000)
    ap.add_argument("--gamma", type=float, default=0.95)
    ap.add_argument("--beta", type=float, default=0.01)
    ap.add_argument("--lr", type=float, default=7e-4)
    ap.add_argument("--seed", type=int, default=0)
    train(ap.parse_args())
