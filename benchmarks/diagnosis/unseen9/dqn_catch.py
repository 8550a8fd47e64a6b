# Single-file DQN on a small pixel game. Follows the layout of the usual one-file RL implementations.
import os
import pickle
import random
import tempfile
import time
from collections import deque, namedtuple
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    seed: int = 1
    torch_deterministic: bool = True
    total_timesteps: int = 2_000_000
    learning_rate: float = 2.5e-4
    buffer_size: int = 6000
    gamma: float = 0.97
    target_network_frequency: int = 400
    batch_size: int = 32
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.01
    learning_starts: int = 1000
    train_frequency: int = 2
    warmup_policy: str = "random"


Transition = namedtuple("Transition", "obs action reward next_obs done")


class CatchEnv:
    """A pellet falls, a paddle moves left / right / not at all. Pixels 64x64."""

    SIZE = 64
    n_actions = 3

    def __init__(self, sprites, seed):
        self.sprites = sprites
        self.rng = np.random.default_rng(seed)
        self.frames = deque(maxlen=4)

    def _render(self):
        screen = self.sprites["background"].copy()
        y, x = int(self.py), int(self.px)
        p = self.sprites["pellet"]
        screen[y:y + p.shape[0], x:x + p.shape[1]] = p
        screen[58:62, self.paddle:self.paddle + 12] = 255
        return screen

    def _obs(self):
        return np.stack(self.frames)

    def reset(self):
        self.px = float(self.rng.integers(4, 54))
        self.py = 0.0
        self.vx = float(self.rng.uniform(-1.5, 1.5))
        self.paddle = 26
        first = self._render()
        for _ in range(4):
            self.frames.append(first)
        return self._obs()

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + (action - 1) * 4, 0, 52))
        self.py += 3.0
        self.px += self.vx
        if self.px < 0 or self.px > 58:
            self.vx = -self.vx
            self.px = float(np.clip(self.px, 0, 58))
        done = self.py >= 54
        reward = 0.0
        if done:
            reward = 1.0 if self.paddle - 4 <= self.px <= self.paddle + 12 else -1.0
        self.frames.append(self._render())
        return self._obs(), reward, done


class QNetwork(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 64, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(64, 128, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(128, 128, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2048, 512),
            nn.ReLU(),
            nn.Linear(512, n_actions),
        )

    def forward(self, x):
        return self.network(x / 255.0)


def linear_schedule(start_e, end_e, duration, t):
    slope = (end_e - start_e) / duration
    return max(slope * t + start_e, end_e)


def load_sprites(root):
    path = os.path.join(root, "sprites.pkl")
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        rng = np.random.default_rng(0)
        sprites = {
            "background": rng.integers(0, 30, (64, 64)).astype(np.uint8),
            "pellet": np.full((5, 5), 220, np.uint8),
        }
        with open(path, "wb") as fh:
            pickle.dump(sprites, fh)
    with open(path, "rb") as fh:
        return pickle.load(fh)


def main():
    args = Args()
    run_name = f"{args.exp_name}__{args.seed}__{int(time.time())}"
    print("run", run_name)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    sprites = load_sprites(os.path.join(tempfile.gettempdir(), args.exp_name))
    env = CatchEnv(sprites, args.seed)
    q_network = QNetwork(env.n_actions).to(device)
    target_network = QNetwork(env.n_actions).to(device)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = deque(maxlen=args.buffer_size)

    returns = deque(maxlen=100)
    losses = []
    obs = env.reset()
    start_time = time.time()
    updates = 0
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(args.start_e, args.end_e,
                                  args.exploration_fraction * args.total_timesteps, global_step)
        if random.random() < epsilon or global_step < args.learning_starts:
            action = random.randrange(env.n_actions)
        else:
            with torch.no_grad():
                q_values = q_network(torch.from_numpy(obs).unsqueeze(0).float().to(device))
            action = int(torch.argmax(q_values, dim=1).cpu().numpy()[0])
        next_obs, reward, done = env.step(action)
        rb.append(Transition(obs, action, reward, next_obs, done))
        obs = next_obs
        if done:
            returns.append(reward)
            obs = env.reset()

        if global_step > args.learning_starts and global_step % args.train_frequency == 0:
            batch = random.sample(rb, args.batch_size)
            b_obs = torch.tensor([t.obs for t in batch], dtype=torch.float32, device=device)
            b_next = torch.tensor([t.next_obs for t in batch], dtype=torch.float32, device=device)
            b_act = torch.tensor([t.action for t in batch], device=device)
            b_rew = torch.tensor([t.reward for t in batch], dtype=torch.float32, device=device)
            b_done = torch.tensor([float(t.done) for t in batch], device=device)
            with torch.no_grad():
                target_max = target_network(b_next).max(dim=1).values
                td_target = b_rew + args.gamma * target_max * (1 - b_done)
            old_val = q_network(b_obs).gather(1, b_act.unsqueeze(1)).squeeze(1)
            loss = F.mse_loss(old_val, td_target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            updates += 1
            if updates % 50 == 0:
                ups = updates / (time.time() - start_time)
                print(f"step={global_step} loss={np.mean(losses[-50:]):.5f} "
                      f"return={np.mean(returns):+.2f} eps={epsilon:.2f} updates/s={ups:.1f}", flush=True)

        if global_step % args.target_network_frequency == 0:
            target_network.load_state_dict({k: v.clone() for k, v in q_network.state_dict().items()})


if __name__ == "__main__":
    main()
