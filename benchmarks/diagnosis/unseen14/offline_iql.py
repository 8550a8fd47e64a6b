"""Offline RL: implicit Q-learning on a mixed-quality locomotion log.

Transitions are drawn in proportion to the return of the episode that they come
from, so that the few good episodes are not drowned by the mediocre ones.
"""
import argparse
import copy
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

NAME = "offline_iql"
OBS_DIM, ACT_DIM = 17, 6


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--episode-length", type=int, default=500)
    parser.add_argument("--total-updates", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=224)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--expectile", type=float, default=0.8)
    parser.add_argument("--beta", type=float, default=3.0)
    parser.add_argument("--return-temperature", type=float, default=0.5)
    parser.add_argument("--log-interval", type=int, default=100)
    return parser.parse_args()


def collect_log(args):
    """Roll out noisy linear policies of varying quality, all episodes in parallel."""
    folder = os.path.join(tempfile.gettempdir(), NAME)
    path = os.path.join(folder, f"log_{args.episodes}x{args.episode_length}.npz")
    if os.path.exists(path):
        with np.load(path) as f:
            return {k: f[k] for k in f.files}
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    n, t_max = args.episodes, args.episode_length
    A = (np.eye(OBS_DIM) * 0.95 + rng.normal(0, 0.03, (OBS_DIM, OBS_DIM))).astype(np.float32)
    B = rng.normal(0, 0.2, (ACT_DIM, OBS_DIM)).astype(np.float32)
    K = rng.normal(0, 0.3, (OBS_DIM, ACT_DIM)).astype(np.float32)
    noise = rng.uniform(0.1, 1.0, (n, 1)).astype(np.float32)
    obs = np.empty((n, t_max + 1, OBS_DIM), np.float32)
    act = np.empty((n, t_max, ACT_DIM), np.float32)
    rew = np.empty((n, t_max), np.float32)
    s = rng.standard_normal((n, OBS_DIM), dtype=np.float32)
    for t in range(t_max):
        obs[:, t] = s
        act[:, t] = np.tanh(s @ K + noise * rng.standard_normal((n, ACT_DIM), dtype=np.float32))
        rew[:, t] = s[:, 0] - 0.1 * np.square(act[:, t]).sum(1)
        s = np.clip(s @ A + act[:, t] @ B + 0.05 * rng.standard_normal((n, OBS_DIM), dtype=np.float32), -5, 5)
    obs[:, t_max] = s
    data = {"obs": obs, "act": act, "rew": rew}
    tmp = path + ".tmp.npz"
    np.savez(tmp, **data)
    os.replace(tmp, path)
    return data


class TransitionDataset(Dataset):
    """Flat transitions; an item may be asked for with an array of indices."""

    def __init__(self, log):
        n, t_max = log["rew"].shape
        self.obs = torch.from_numpy(log["obs"].reshape(-1, OBS_DIM))
        self.act = torch.from_numpy(log["act"].reshape(-1, ACT_DIM))
        rew = log["rew"]
        self.rew = torch.from_numpy((rew - rew.mean()) / rew.std()).reshape(-1)
        self.t_max = t_max
        self.episode_return = rew.sum(1)

    def __len__(self):
        return len(self.rew)

    def __getitem__(self, index):
        index = torch.from_numpy(index)
        row = index + torch.div(index, self.t_max, rounding_mode="floor")
        last = (index + 1) % self.t_max == 0
        return self.obs[row], self.act[index], self.rew[index], self.obs[row + 1], last.float()

    def sample_weights(self, temperature):
        z = (self.episode_return - self.episode_return.max()) / (self.episode_return.std() * temperature)
        w = np.repeat(np.exp(z.astype(np.float64)) + 1e-3, self.t_max)
        return w / w.sum()


class ReturnWeightedSampler(Sampler):
    """Yields one array of transition indices per update."""

    def __init__(self, weights, batch_size, num_batches, seed):
        self.weights = weights
        self.batch_size = batch_size
        self.num_batches = num_batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.num_batches

    def __iter__(self):
        n = len(self.weights)
        for _ in range(self.num_batches):
            yield self.rng.choice(n, self.batch_size, p=self.weights)


def mlp(n_in, hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                         nn.Linear(hidden, n_out))


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.trunk = mlp(OBS_DIM, hidden, ACT_DIM)
        self.log_std = nn.Parameter(torch.zeros(ACT_DIM))

    def log_prob(self, obs, act):
        mean = torch.tanh(self.trunk(obs))
        log_std = self.log_std.clamp(-4, 1)
        return (-0.5 * ((act - mean) / log_std.exp()).square() - log_std).sum(-1)


class TwinQ(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.q1 = mlp(OBS_DIM + ACT_DIM, hidden, 1)
        self.q2 = mlp(OBS_DIM + ACT_DIM, hidden, 1)

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class IQL:
    def __init__(self, args):
        self.args = args
        self.policy = Policy(args.hidden)
        self.q = TwinQ(args.hidden)
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)
        self.v = mlp(OBS_DIM, args.hidden, 1)
        params = [*self.policy.parameters(), *self.q.parameters(), *self.v.parameters()]
        self.optimizer = torch.optim.Adam(params, lr=args.learning_rate, fused=True)
        self._pairs = (list(self.q_target.parameters()), list(self.q.parameters()))

    def update(self, obs, act, rew, next_obs, done):
        a = self.args
        with torch.no_grad():
            target_q = torch.min(*self.q_target(obs, act))
            target = rew + a.gamma * (1 - done) * self.v(next_obs).squeeze(-1)
        value = self.v(obs).squeeze(-1)
        adv = target_q - value
        v_loss = (torch.where(adv > 0, a.expectile, 1 - a.expectile) * adv.square()).mean()
        q1, q2 = self.q(obs, act)
        q_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        weight = torch.exp(a.beta * adv.detach()).clamp(max=100.0)
        pi_loss = -(weight * self.policy.log_prob(obs, act)).mean()
        self.optimizer.zero_grad()
        (v_loss + q_loss + pi_loss).backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(*self._pairs, a.tau)
        return v_loss.detach(), q_loss.detach(), pi_loss.detach()


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    dataset = TransitionDataset(collect_log(args))
    print(f"{len(dataset)} transitions, returns {dataset.episode_return.min():.1f} .. "
          f"{dataset.episode_return.max():.1f}")
    sampler = ReturnWeightedSampler(dataset.sample_weights(args.return_temperature), args.batch_size,
                                    args.total_updates, args.seed)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    agent = IQL(args)
    start = time.time()
    for update, batch in enumerate(loader, 1):
        losses = agent.update(*batch)
        if update % args.log_interval == 0:
            v_loss, q_loss, pi_loss = (x.item() for x in losses)
            print(f"update={update} v_loss={v_loss:.4f} q_loss={q_loss:.4f} pi_loss={pi_loss:.3f} "
                  f"SPS={int(update / (time.time() - start))}", flush=True)


if __name__ == "__main__":
    main()
