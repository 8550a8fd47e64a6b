"""PPO (in one file, after CleanRL) on a partially seen key-and-door grid world.

The agent sees a 7x7 window, must fetch the key, open the door and reach the goal behind it.
"""
from dataclasses import dataclass
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical

EMPTY, WALL, KEY, DOOR, GOAL = range(5)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


@dataclass
class Args:
    seed: int = 1
    total_timesteps: int = 2_000_000
    learning_rate: float = 2.5e-4
    num_envs: int = 16
    num_steps: int = 128
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 8
    update_epochs: int = 4
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


class KeyDoorEnv:
    """Two rooms, 9x9 cells. Observation: one-hot 7x7 window (5 planes) and a key flag plane."""
    size, view, max_steps, n_actions, obs_shape = 9, 7, 120, 4, (6, 7, 7)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        n = self.size
        self.grid = np.zeros((n, n), dtype=np.int64)
        self.grid[0], self.grid[-1], self.grid[:, 0], self.grid[:, -1] = WALL, WALL, WALL, WALL
        split = self.rng.integers(3, n - 3)
        self.grid[:, split] = WALL
        self.grid[self.rng.integers(1, n - 1), split] = DOOR
        left = [(r, c) for r in range(1, n - 1) for c in range(1, split)]
        key, start = self.rng.choice(len(left), 2, replace=False)
        self.grid[left[key]] = KEY
        self.pos = left[start]
        self.grid[self.rng.integers(1, n - 1), self.rng.integers(split + 1, n - 1)] = GOAL
        self.has_key, self.t = False, 0
        return self.observe()

    def observe(self):
        h = self.view // 2
        padded = np.pad(self.grid, h, constant_values=WALL)
        r, c = self.pos
        window = padded[r:r + self.view, c:c + self.view]
        planes = np.eye(5, dtype=np.float32)[window].transpose(2, 0, 1)
        flag = np.full((1, self.view, self.view), self.has_key, dtype=np.float32)
        return np.concatenate([planes, flag])

    def step(self, action):
        self.t += 1
        dr, dc = MOVES[action]
        target = (self.pos[0] + dr, self.pos[1] + dc)
        cell, reward = self.grid[target], 0.0
        if cell == KEY or (cell == DOOR and self.has_key):
            self.has_key, reward = True, 0.1
            self.grid[target] = EMPTY
        if self.grid[target] in (EMPTY, GOAL):
            self.pos = target
        done = cell == GOAL or self.t >= self.max_steps
        if cell == GOAL:
            reward = 1 - 0.9 * self.t / self.max_steps
        return (self.reset() if done else self.observe()), reward, done


class Agent(nn.Module):
    def __init__(self, env):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(env.obs_shape[0], 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 5 * 5, 128), nn.ReLU())
        self.actor = nn.Linear(128, env.n_actions)
        self.critic = nn.Linear(128, 1)

    def get_action_and_value(self, x, action=None):
        hidden = self.network(x)
        probs = Categorical(logits=self.actor(hidden))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(hidden)


if __name__ == "__main__":
    args = Args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    batch_size = args.num_envs * args.num_steps
    minibatch_size = batch_size // args.num_minibatches
    num_updates = args.total_timesteps // batch_size
    envs = [KeyDoorEnv(args.seed + i) for i in range(args.num_envs)]
    agent = Agent(envs[0])
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(shape + envs[0].obs_shape)
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    next_obs = torch.tensor(np.stack([env.reset() for env in envs]))
    next_done = torch.zeros(args.num_envs)
    episode_return, finished = np.zeros(args.num_envs), []
    start = time.time()
    for update in range(1, num_updates + 1):
        optimizer.param_groups[0]["lr"] = (1 - (update - 1) / num_updates) * args.learning_rate
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step], actions[step], logprobs[step] = value.flatten(), action, logprob
            results = [env.step(a) for env, a in zip(envs, action.numpy())]
            next_obs = torch.tensor(np.stack([r[0] for r in results]))
            rewards[step] = torch.tensor([r[1] for r in results])
            next_done = torch.tensor([float(r[2]) for r in results])
            episode_return += rewards[step].numpy()
            finished.extend(episode_return[next_done.numpy() == 1])
            episode_return[next_done.numpy() == 1] = 0

        with torch.no_grad():
            next_value = agent.get_action_and_value(next_obs)[3].flatten()
            advantages, lastgaelam = torch.zeros_like(rewards), 0
            for t in reversed(range(args.num_steps)):
                nonterminal = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
                nextvalue = next_value if t == args.num_steps - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * nextvalue * nonterminal - values[t]
                lastgaelam = delta + args.gamma * args.gae_lambda * nonterminal * lastgaelam
                advantages[t] = lastgaelam
            returns = advantages + values
        b_obs, b_actions, b_logprobs, b_advantages, b_returns = (
            x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, returns))
        for epoch in range(args.update_epochs):
            perm = torch.randperm(batch_size)
            for mb in perm.split(minibatch_size):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                    b_obs[mb], b_actions[mb])
                ratio = (newlogprob - b_logprobs[mb]).exp()
                adv = b_advantages[mb]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(-adv * ratio, -adv * clipped).mean()
                v_loss = 0.5 * ((newvalue.flatten() - b_returns[mb]) ** 2).mean()
                loss = pg_loss - args.ent_coef * entropy.mean() + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        sps = int(update * batch_size / (time.time() - start))
        print(f"{update}/{num_updates} return {np.mean(finished[-100:]):.3f} SPS {sps}", flush=True)
