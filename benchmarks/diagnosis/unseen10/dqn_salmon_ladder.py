# docs and experiment results can be found at (dead link); single-file implementation after CleanRL's dqn_atari
import os
import random
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    """the name of this experiment"""
    seed: int = 1
    """seed of the experiment"""
    torch_deterministic: bool = True
    """if toggled, `torch.backends.cudnn.deterministic=False`"""
    torch_threads: int = 8
    """intra-op threads"""
    total_timesteps: int = 2_000_000
    learning_rate: float = 1e-3
    num_envs: int = 16
    buffer_size: int = 6_000
    gamma: float = 0.9
    target_network_frequency: int = 200
    batch_size: int = 48
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_steps: int = 60_000
    learning_starts: int = 3_200


class SalmonLadder:
    """Vectorised grid game: swim up through gaps in scrolling weirs. 3 actions, 42x42 frames."""

    H = W = 42

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.fish = np.full(n, 20)
        self.gap = self.rng.integers(4, 38, (n, 3))
        self.row = np.tile(np.array([0, 14, 28]), (n, 1))
        self.stack = np.zeros((n, 4, self.H, self.W), np.uint8)

    def _draw(self):
        f = np.zeros((self.n, self.H, self.W), np.uint8)
        e = np.arange(self.n)
        cols = np.arange(self.W)
        for k in range(3):
            closed = np.abs(cols[None] - self.gap[:, k:k + 1]) > 4
            f[e, self.row[:, k]] = closed * 180
        for dx in (-1, 0, 1):
            f[e, 40, np.clip(self.fish + dx, 0, self.W - 1)] = 255
        self.stack = np.concatenate([self.stack[:, 1:], f[:, None]], axis=1)
        return self.stack

    def reset(self):
        return self._draw()

    def step(self, a):
        self.fish = np.clip(self.fish + 2 * (a - 1), 1, self.W - 2)
        self.row = self.row + 2
        arrived = self.row >= 40
        reward = np.zeros(self.n, np.float32)
        passed = arrived & (np.abs(self.gap - self.fish[:, None]) <= 4)
        reward += passed.any(1)
        done = (arrived & ~passed).any(1)
        reward -= done
        self.row = np.where(arrived, 0, self.row)
        self.gap = np.where(arrived, self.rng.integers(4, 38, self.gap.shape), self.gap)
        return self._draw(), reward, done


class ReplayBuffer:
    def __init__(self, size, n):
        self.obs = np.zeros((size, 4, 42, 42), np.uint8)
        self.next_obs = np.zeros((size, 4, 42, 42), np.uint8)
        self.actions = np.zeros(size, np.int64)
        self.rewards = np.zeros(size, np.float32)
        self.dones = np.zeros(size, np.float32)
        self.size, self.pos, self.full = size, 0, False

    def add(self, o, no, a, r, d):
        i = (self.pos + np.arange(len(a))) % self.size
        self.obs[i], self.next_obs[i], self.actions[i], self.rewards[i], self.dones[i] = o, no, a, r, d
        self.full = self.full or self.pos + len(a) >= self.size
        self.pos = (self.pos + len(a)) % self.size

    def sample(self, k):
        i = np.random.randint(0, self.size if self.full else self.pos, k)
        return tuple(torch.from_numpy(v[i]) for v in (self.obs, self.next_obs, self.actions, self.rewards, self.dones))


class QNetwork(nn.Module):
    def __init__(self, n_actions=3):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 48, 3, stride=1),
            nn.ReLU(),
            nn.Conv2d(48, 48, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(48 * 8 * 8, 256),
            nn.ReLU(),
            nn.Linear(256, n_actions),
        )

    def forward(self, x):
        return self.network(x / 255.0)


def linear_schedule(start_e: float, end_e: float, duration: int, t: int):
    slope = (end_e - start_e) / duration
    return max(slope * t + start_e, end_e)


if __name__ == "__main__":
    args = Args()
    run_name = f"{args.exp_name}__{args.seed}"
    out = os.path.join(tempfile.gettempdir(), "dqn_salmon_ladder")
    os.makedirs(out, exist_ok=True)

    # TRY NOT TO MODIFY: seeding
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    torch.set_num_threads(args.torch_threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    envs = SalmonLadder(args.num_envs, args.seed)
    q_network = QNetwork().to(device)
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    target_network = QNetwork().to(device)
    target_network.load_state_dict(q_network.state_dict())

    rb = ReplayBuffer(args.buffer_size, args.num_envs)
    start_time = time.time()
    returns = 0.0
    updates = 0

    # TRY NOT TO MODIFY: start the game
    obs = envs.reset()
    for global_step in range(0, args.total_timesteps, args.num_envs):
        # ALGO LOGIC: put action logic here
        epsilon = linear_schedule(args.start_e, args.end_e, args.exploration_steps, global_step)
        if global_step < args.learning_starts:
            actions = np.random.randint(0, 3, args.num_envs)
        else:
            with torch.no_grad():
                q_values = q_network(torch.from_numpy(obs).to(device))
            actions = torch.argmax(q_values, dim=1).cpu().numpy()
            explore = np.random.rand(args.num_envs) < epsilon
            actions[explore] = np.random.randint(0, 3, explore.sum())

        next_obs, rewards, dones = envs.step(actions)
        rb.add(obs, next_obs, actions, rewards, dones)
        returns = 0.99 * returns + 0.01 * rewards.mean()
        obs = next_obs

        # ALGO LOGIC: training.
        if global_step > args.learning_starts:
            s, s2, a, r, d = rb.sample(args.batch_size)
            with torch.no_grad():
                target_max, _ = target_network(s2).max(dim=1)
                td_target = r + args.gamma * target_max * (1 - d)
            old_val = q_network(s).gather(1, a[:, None]).squeeze(1)
            loss = F.mse_loss(td_target, old_val)

            # optimize the model
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1

            if updates % 50 == 0:
                print(f"step {global_step} td_loss {loss.item():.5f} q {old_val.mean().item():.3f} "
                      f"reward {returns:.4f} SPS {int(global_step / (time.time() - start_time))}", flush=True)
            # update target network
            if updates % args.target_network_frequency == 0:
                for target_param, param in zip(target_network.parameters(), q_network.parameters()):
                    target_param.data.copy_(param.data)
            if updates % 5000 == 0:
                torch.save(q_network.state_dict(), os.path.join(out, f"{run_name}.cleanrl_model"))
