"""REINFORCE with a baseline on the cart and pole, physics included."""
import math
import os
import random
import tempfile
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

OUT_DIR = os.path.join(tempfile.gettempdir(), "reinforce_cartpole_cc")
GAMMA = 0.99
LR = 1e-3
EPISODES = 6000
MAX_STEPS = 500


class CartPole:
    """The classic equations of motion (Barto, Sutton and Anderson, 1983), force left or right."""

    gravity, mass_cart, mass_pole, length, force, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, spin = self.state
        force = self.force if action == 1 else -self.force
        force += self.rng.normal(0, 0.5)                 # a little wind
        total = self.mass_cart + self.mass_pole
        pml = self.mass_pole * self.length
        sin, cos = math.sin(angle), math.cos(angle)
        tmp = (force + pml * spin ** 2 * sin) / total
        spin_acc = (self.gravity * sin - cos * tmp) / (self.length * (4 / 3 - self.mass_pole * cos ** 2 / total))
        acc = tmp - pml * spin_acc * cos / total
        self.state = np.array([x + self.tau * v, v + self.tau * acc, angle + self.tau * spin, spin + self.tau * spin_acc])
        self.t += 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        reward = 1.0 - 0.05 * abs(self.state[0])
        return self.state.astype(np.float32), reward, fallen or self.t >= MAX_STEPS


class Policy(nn.Module):
    """Two outputs: the logits of the actions and the value of the state."""

    def __init__(self, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, 2)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, state):
        h = self.body(state)
        return self.actor(h), self.critic(h).squeeze(-1)


def run_episode(env, policy):
    states, actions, rewards = [], [], []
    log_probs, values, entropies = [], [], []
    state, done = env.reset(), False
    while not done:
        logits, value = policy(torch.from_numpy(state))
        dist = Categorical(logits=logits)
        action = dist.sample()
        states.append(state)
        actions.append(action)
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(value)
        state, reward, done = env.step(action.item())
        rewards.append(reward)
    log_probs, values, entropies = torch.stack(log_probs), torch.stack(values), torch.stack(entropies)
    return log_probs, values, entropies, rewards


def discounted(rewards):
    returns, total = [], 0.0
    for r in reversed(rewards):
        total = r + GAMMA * total
        returns.insert(0, total)
    return torch.tensor(returns)


def main():
    os.makedirs(OUT_DIR, exist_ok=True)
    random.seed(0)
    torch.manual_seed(0)
    env = CartPole(seed=0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=LR)
    recent = deque(maxlen=50)
    start = time.time()
    best = 0.0

    for episode in range(1, EPISODES + 1):
        log_probs, values, entropies, rewards = run_episode(env, policy)
        returns = discounted(rewards) / 50
        advantage = returns - values.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        policy_loss = -(log_probs * advantage).mean()
        value_loss = F.mse_loss(values, returns)
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropies.mean()

        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()

        recent.append(len(rewards))
        if episode % 25 == 0:
            mean = sum(recent) / len(recent)
            print(f"episode {episode} mean length {mean:.1f} loss {loss.item():.3f} ({time.time() - start:.0f} s)")
            if mean > best:
                best = mean
                torch.save(policy.state_dict(), os.path.join(OUT_DIR, "best.pt"))


if __name__ == "__main__":
    main()
