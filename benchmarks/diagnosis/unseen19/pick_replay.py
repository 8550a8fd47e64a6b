"""Double DQN with prioritised replay for a planar pick task: a gripper over a table, 9 discrete moves, sparse reward.

The environment is simulated here (state: gripper pose, speeds, object pose, 24 range readings around the gripper). A warm-up
of scripted demonstrations is kept in an npz so that a new start does not have to collect it again.
"""
import json
import os
import random
import tempfile
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = os.path.join(tempfile.gettempdir(), "pick_replay")
OBS = 36
ACTIONS = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
Transition = namedtuple("Transition", "obs action reward next_obs done")


class PickTable:
    """A point gripper with inertia has to come to rest above the object."""

    def __init__(self, rng):
        self.rng = rng
        self.angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        self.dirs = np.stack([np.cos(self.angles), np.sin(self.angles)], 1)

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, 2)
        self.vel = np.zeros(2)
        self.obj = self.rng.uniform(-0.8, 0.8, 2)
        self.obstacles = self.rng.uniform(-0.9, 0.9, (3, 2))
        self.t = 0
        return self.observe()

    def observe(self):
        rel = self.obstacles - self.pos
        along = rel @ self.dirs.T
        across = np.sqrt(np.maximum((rel ** 2).sum(1, keepdims=True) - along ** 2, 0))
        hit = np.where((along > 0) & (across < 0.12), along, 2.0).min(0)
        return np.concatenate([self.pos, self.vel, self.obj, self.obj - self.pos, self.obstacles.ravel()[:4], hit]).astype(np.float32)

    def step(self, action):
        push = np.array(ACTIONS[action]) * 0.03
        self.vel = 0.85 * self.vel + push
        self.pos = np.clip(self.pos + self.vel, -1.2, 1.2)
        self.t += 1
        dist = np.linalg.norm(self.obj - self.pos)
        crash = np.linalg.norm(self.obstacles - self.pos, axis=1).min() < 0.1
        success = dist < 0.08 and np.linalg.norm(self.vel) < 0.06
        reward = 1.0 if success else (-0.5 if crash else -0.01 * dist)
        return self.observe(), reward, bool(success or crash or self.t >= 80)


def demonstrations(count=60000):
    path = os.path.join(ROOT, "demonstrations.npz")
    os.makedirs(ROOT, exist_ok=True)
    if not os.path.exists(path):
        rng = np.random.default_rng(3)
        env = PickTable(rng)
        rows = []
        obs = env.reset()
        while len(rows) < count:
            wish = 0.25 * (env.obj - env.pos) - env.vel
            action = ACTIONS.index(tuple(int(v) for v in np.sign(np.round(wish / 0.04))))
            if rng.random() < 0.3:
                action = int(rng.integers(len(ACTIONS)))
            nxt, reward, done = env.step(action)
            rows.append((obs, action, reward, nxt, done))
            obs = env.reset() if done else nxt
        columns = [np.array(c) for c in zip(*rows)]
        np.savez(path, obs=columns[0], action=columns[1], reward=columns[2], next_obs=columns[3], done=columns[4])
    data = np.load(path)
    return [Transition(*row) for row in zip(*(data[k] for k in Transition._fields))]


class PrioritizedReplay:
    def __init__(self, capacity, alpha=0.6):
        self.memory = deque(maxlen=capacity)
        self.priorities = deque(maxlen=capacity)
        self.alpha = alpha

    def __len__(self):
        return len(self.memory)

    def add(self, transition):
        self.priorities.append(max(self.priorities) if self.priorities else 1.0)
        self.memory.append(transition)

    def extend(self, transitions):
        for t in transitions:
            self.priorities.append(1.0)
            self.memory.append(t)

    def sample(self, batch_size, beta):
        probs = np.array(self.priorities) ** self.alpha
        probs /= probs.sum()
        idx = np.random.choice(len(self.memory), batch_size, p=probs)
        weights = (len(self.memory) * probs[idx]) ** (-beta)
        weights /= weights.max()
        batch = Transition(*zip(*[self.memory[i] for i in idx]))
        return idx, torch.tensor(weights, dtype=torch.float32), batch

    def update(self, idx, errors):
        for i, e in zip(idx, errors):
            self.priorities[i] = float(abs(e)) + 1e-3


class DuelingNet(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(OBS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(hidden, 128), nn.ReLU(), nn.Linear(128, 1))
        self.advantage = nn.Sequential(nn.Linear(hidden, 128), nn.ReLU(), nn.Linear(128, len(ACTIONS)))

    def forward(self, obs):
        h = self.trunk(obs)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


def learn(net, target, optimizer, replay, batch_size, beta, gamma=0.98):
    idx, weights, batch = replay.sample(batch_size, beta)
    obs = torch.from_numpy(np.stack(batch.obs))
    next_obs = torch.from_numpy(np.stack(batch.next_obs))
    action = torch.tensor(batch.action).long()
    reward = torch.tensor(batch.reward, dtype=torch.float32)
    alive = 1.0 - torch.tensor(batch.done, dtype=torch.float32)
    with torch.no_grad():
        best = net(next_obs).argmax(1, keepdim=True)
        goal = reward + gamma * alive * target(next_obs).gather(1, best).squeeze(1)
    q = net(obs).gather(1, action.unsqueeze(1)).squeeze(1)
    loss = (weights * F.smooth_l1_loss(q, goal, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimizer.step()
    replay.update(idx, (goal - q).detach().numpy())
    return loss.item()


def main():
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    replay = PrioritizedReplay(100000)
    replay.extend(demonstrations())
    env = PickTable(np.random.default_rng(11))
    net, target = DuelingNet(), DuelingNet()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    log = open(os.path.join(ROOT, "train.jsonl"), "w")
    obs, returns, total = env.reset(), deque(maxlen=50), 0.0
    started = time.time()
    for step in range(1, 60001):
        epsilon = max(0.05, 0.5 - step / 20000)
        if random.random() < epsilon:
            action = random.randrange(len(ACTIONS))
        else:
            with torch.no_grad():
                action = int(net(torch.from_numpy(obs).unsqueeze(0)).argmax())
        nxt, reward, done = env.step(action)
        replay.add(Transition(obs, action, reward, nxt, done))
        total += reward
        obs = nxt
        if done:
            returns.append(total)
            obs, total = env.reset(), 0.0
        loss = learn(net, target, optimizer, replay, 128, beta=min(1.0, 0.4 + step / 50000))
        if step % 500 == 0:
            target.load_state_dict(net.state_dict())
        if step % 100 == 0:
            row = {"step": step, "loss": loss, "return": float(np.mean(returns)) if returns else 0.0, "epsilon": epsilon,
                   "steps_per_s": step / (time.time() - started)}
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(row, flush=True)
        if step % 5000 == 0:
            torch.save({"net": net.state_dict(), "step": step}, os.path.join(ROOT, "net.pt"))


if __name__ == "__main__":
    main()
