"""
DQN for berth allocation at a container terminal.

State: queue of waiting ships + remaining work at each berth. Action: which berth the ship
at the head of the queue is sent to (or let it wait). The replay memory is warm-started
from the dispatcher's log.
"""
import os
import random
import tempfile
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

# ---------------------------------------------------------------- hyperparameters
N_BERTHS = 8
QUEUE = 12
OBS_DIM = N_BERTHS * 2 + QUEUE * 3
N_ACTIONS = N_BERTHS + 1

MEMORY_SIZE = 2_000_000
LOG_SIZE = 1_800_000
BATCH_SIZE = 256
GAMMA = 0.98
LR = 3e-4
TAU = 0.005
EPS_START, EPS_END, EPS_DECAY = 0.9, 0.05, 4000
TOTAL_STEPS = 6_000
SEED = 3

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class BerthEnv:
    """Very small terminal simulator, one decision per call of step()."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.speed = np.linspace(0.6, 1.4, N_BERTHS).astype(np.float32)
        self.max_len = np.linspace(0.5, 1.0, N_BERTHS).astype(np.float32)
        self.reset()

    def reset(self):
        self.work = self.rng.random(N_BERTHS, dtype=np.float32)
        self.ships = self.rng.random((QUEUE, 3), dtype=np.float32)  # length, load, waited
        self.ships[:, 2] = 0
        return self.observe()

    def observe(self):
        return np.concatenate([self.work, self.speed, self.ships.ravel()])

    def step(self, action):
        reward = -0.05 * float(self.ships[:, 2].mean())
        if action < N_BERTHS:
            length, load, _ = self.ships[0]
            if length > self.max_len[action]:
                reward -= 1.0
            else:
                reward -= 0.2 * float(self.work[action])
                self.work[action] += load / self.speed[action]
                self.ships[:-1] = self.ships[1:]
                self.ships[-1] = (self.rng.random(), self.rng.random(), 0.0)
                reward += 0.5
        self.work = np.maximum(self.work - 0.12, 0).astype(np.float32)
        self.ships[:, 2] = np.minimum(self.ships[:, 2] + 0.05, 2.0)
        return self.observe(), reward


def dispatcher_log():
    """Transitions of the rule-based dispatcher, generated once."""
    folder = os.path.join(tempfile.gettempdir(), "quay_dqn")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "log.npz")
    if not os.path.exists(path):
        env, rng = BerthEnv(seed=99), np.random.default_rng(1)
        n_sim = 60_000
        S = np.empty((n_sim + 1, OBS_DIM), np.float32)
        A, R = np.empty(n_sim, np.int64), np.empty(n_sim, np.float32)
        S[0] = env.reset()
        for t in range(n_sim):
            fits = np.flatnonzero(env.max_len >= env.ships[0, 0])
            A[t] = rng.integers(N_ACTIONS) if len(fits) == 0 or rng.random() < 0.2 else fits[np.argmin(env.work[fits])]
            S[t + 1], R[t] = env.step(A[t])
        np.savez(path + ".tmp.npz", S=S, A=A, R=R)
        os.replace(path + ".tmp.npz", path)
    return np.load(path)


class PrioritizedReplay:
    """Proportional prioritization (Schaul et al., 2015)."""

    def __init__(self, capacity, alpha=0.6):
        self.capacity = capacity
        self.alpha = alpha
        self.state = np.zeros((capacity, OBS_DIM), np.float32)
        self.next_state = np.zeros((capacity, OBS_DIM), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.priorities = np.zeros(capacity, np.float32)
        self.max_priority = 1.0
        self.pos = 0
        self.size = 0

    def set_priorities(self, idx, prio):
        self.priorities[idx] = prio

    def extend(self, state, action, next_state, reward):
        idx = (self.pos + np.arange(len(action))) % self.capacity
        self.state[idx], self.next_state[idx] = state, next_state
        self.action[idx], self.reward[idx] = action, reward
        self.set_priorities(idx, self.max_priority)
        self.pos = int(self.pos + len(action)) % self.capacity
        self.size = min(self.size + len(action), self.capacity)

    def push(self, state, action, next_state, reward):
        self.extend(state[None], [action], next_state[None], [reward])

    def sample(self, batch_size, beta):
        probs = self.priorities[:self.size] ** self.alpha
        probs /= probs.sum()
        idx = np.random.choice(self.size, batch_size, p=probs)
        weights = (self.size * probs[idx]) ** (-beta)
        weights /= weights.max()
        batch = Transition(self.state[idx], self.action[idx], self.next_state[idx], self.reward[idx])
        return idx, batch, torch.from_numpy(weights.astype(np.float32))

    def update(self, idx, td_error):
        prio = np.abs(td_error) + 1e-5
        self.set_priorities(idx, prio)
        self.max_priority = max(self.max_priority, float(prio.max()))

    def __len__(self):
        return self.size


class QNet(nn.Module):
    def __init__(self, hidden=320):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(OBS_DIM, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
        )
        self.value = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, N_ACTIONS)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


def warm_start(memory):
    log = dispatcher_log()
    S, A, R = log["S"], log["A"], log["R"]
    n = len(A)
    # ships are interchangeable between terminals with the same layout: jitter the log
    rng = np.random.default_rng(7)
    for start in range(0, LOG_SIZE, n):
        m = min(n, LOG_SIZE - start)
        Sj = S[:m + 1] * rng.normal(1.0, 0.02, size=(m + 1, 1)).astype(np.float32)
        memory.extend(Sj[:-1], A[:m], Sj[1:], R[:m])


def optimize(policy, target, optimizer, memory, beta):
    idx, batch, weights = memory.sample(BATCH_SIZE, beta)
    state, next_state = torch.from_numpy(batch.state), torch.from_numpy(batch.next_state)
    action, reward = torch.from_numpy(batch.action).unsqueeze(1), torch.from_numpy(batch.reward)

    q = policy(state).gather(1, action).squeeze(1)
    with torch.no_grad():
        best = policy(next_state).argmax(1, keepdim=True)
        backup = reward + GAMMA * target(next_state).gather(1, best).squeeze(1)
    loss = (weights * nn.functional.smooth_l1_loss(q, backup, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    memory.update(idx, (q - backup).detach().numpy())
    with torch.no_grad():
        for p, tp in zip(policy.parameters(), target.parameters()):
            tp.lerp_(p, TAU)
    return loss


def main():
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)

    memory = PrioritizedReplay(MEMORY_SIZE)
    t0 = time.time()
    warm_start(memory)
    print(f"replay memory holds {len(memory)} transitions ({time.time() - t0:.1f}s)", flush=True)

    policy, target = QNet(), QNet()
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=LR, amsgrad=True)

    env = BerthEnv(seed=SEED)
    state = env.reset()
    returns = deque(maxlen=200)
    t0 = time.time()
    for step in range(1, TOTAL_STEPS + 1):
        eps = EPS_END + (EPS_START - EPS_END) * np.exp(-step / EPS_DECAY)
        if random.random() < eps:
            action = random.randrange(N_ACTIONS)
        else:
            with torch.no_grad():
                action = int(policy(torch.from_numpy(state).unsqueeze(0)).argmax(1))
        next_state, reward = env.step(action)
        memory.push(state, action, next_state, reward)
        state = next_state
        returns.append(reward)

        beta = min(1.0, 0.4 + 0.6 * step / TOTAL_STEPS)
        loss = optimize(policy, target, optimizer, memory, beta)
        if step % 100 == 0:
            print(f"step {step:6d}  reward {np.mean(returns):+.3f}  loss {loss.item():.4f}  "
                  f"eps {eps:.2f}  {step / (time.time() - t0):.1f} it/s", flush=True)


if __name__ == "__main__":
    main()
