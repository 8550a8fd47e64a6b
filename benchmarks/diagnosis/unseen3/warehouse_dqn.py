# Double DQN for a vectorised inventory-control environment (numpy).
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Warehouse:
    """N independent shops, 4 products each; action = which product to restock."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.rate = rng.uniform(0.5, 2.0, (n, 4))
        self.stock = rng.uniform(5, 15, (n, 4))
        self.clock = np.zeros(n)

    def observe(self):
        phase = 2 * np.pi * self.clock / 24
        return np.concatenate(
            [self.stock / 10 - 1, self.rate, np.sin(phase)[:, None], np.cos(phase)[:, None]], 1
        ).astype(np.float32)

    def step(self, action):
        demand = self.rng.poisson(self.rate * (1 + 0.5 * np.sin(2 * np.pi * self.clock / 24))[:, None])
        sold = np.minimum(demand, self.stock)
        missed = demand - sold
        self.stock -= sold
        buy = action < 4
        self.stock[np.arange(self.n)[buy], action[buy]] += 6
        reward = sold.sum(1) - 2 * missed.sum(1) - 0.05 * self.stock.sum(1) - 1.0 * buy
        self.clock = (self.clock + 1) % 24
        self.stock = np.clip(self.stock, 0, 30)
        return self.observe(), reward.astype(np.float32) / 5


class Replay:
    def __init__(self, size, obs_dim):
        self.s = torch.zeros(size, obs_dim)
        self.s2 = torch.zeros(size, obs_dim)
        self.a = torch.zeros(size, dtype=torch.long)
        self.r = torch.zeros(size)
        self.size, self.pos, self.full = size, 0, False

    def add(self, s, a, r, s2):
        idx = (self.pos + torch.arange(len(s))) % self.size
        self.s[idx], self.s2[idx] = torch.from_numpy(s), torch.from_numpy(s2)
        self.a[idx], self.r[idx] = torch.from_numpy(a), torch.from_numpy(r)
        self.full |= self.pos + len(s) >= self.size
        self.pos = (self.pos + len(s)) % self.size

    def sample(self, n):
        i = torch.randint(0, self.size if self.full else self.pos, (n,))
        return self.s[i], self.a[i], self.r[i], self.s2[i]


def qnet(obs, actions, h=384):
    layers = [nn.Linear(obs, h), nn.LayerNorm(h), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(h, h), nn.LayerNorm(h), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(h, actions))


class Updater:
    """Adam with norm clipping, plus the slow copy used for bootstrapping."""

    def __init__(self, online, target, lr, clip=10.0, tau=0.005):
        self.online, self.target = online, target
        self.lr, self.clip, self.tau, self.t = lr, clip, tau, 0
        self.m = {k: np.zeros(p.shape, np.float32) for k, p in online.named_parameters()}
        self.v = {k: np.zeros(p.shape, np.float32) for k, p in online.named_parameters()}

    def step(self):
        self.t += 1
        grads = {k: p.grad.detach().clone().numpy() for k, p in self.online.named_parameters()}
        norm = math.sqrt(sum(float((g ** 2).sum()) for g in grads.values()))
        scale = min(1.0, self.clip / (norm + 1e-6))
        for k, p in self.online.named_parameters():
            g = grads[k] * scale
            self.m[k] = 0.9 * self.m[k] + 0.1 * g
            self.v[k] = 0.999 * self.v[k] + 0.001 * g ** 2
            mhat = self.m[k] / (1 - 0.9 ** self.t)
            vhat = self.v[k] / (1 - 0.999 ** self.t)
            p.data = torch.from_numpy(p.detach().numpy() - self.lr * mhat / (np.sqrt(vhat) + 1e-8))
        new = {}
        slow = self.target.state_dict()
        for k, w in self.online.state_dict().items():
            new[k] = (1 - self.tau) * slow[k].clone() + self.tau * w.clone()
        self.target.load_state_dict(new)
        return norm


def main():
    rng = np.random.default_rng(4)
    torch.manual_seed(4)
    env = Warehouse(16, rng)
    obs = env.observe()
    online, target = qnet(obs.shape[1], 5), qnet(obs.shape[1], 5)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    updater = Updater(online, target, lr=3e-4)
    replay = Replay(50_000, obs.shape[1])
    batch, gamma, total = 64, 0.97, 60_000
    tic, returns, losses = time.time(), [], []
    for step in range(1, total + 1):
        eps = max(0.05, 1 - step / 5000)
        with torch.no_grad():
            action = online(torch.from_numpy(obs)).argmax(1).numpy()
        explore = rng.random(env.n) < eps
        action = np.where(explore, rng.integers(0, 5, env.n), action)
        nxt, reward = env.step(action)
        replay.add(obs, action, reward, nxt)
        obs = nxt
        returns.append(reward.mean())

        s, a, r, s2 = replay.sample(batch)
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            y = r + gamma * target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(online(s).gather(1, a[:, None]).squeeze(1), y)
        online.zero_grad()
        loss.backward()
        norm = updater.step()
        losses.append(loss.item())
        if step % 50 == 0:
            now = time.time()
            print(f"{step:6d} reward {np.mean(returns[-200:]):+.3f} loss {np.mean(losses[-50:]):.4f} gnorm {float(norm):.2f} {50 * batch / (now - tic):.0f} transitions/s", flush=True)
            tic = now


if __name__ == "__main__":
    main()
