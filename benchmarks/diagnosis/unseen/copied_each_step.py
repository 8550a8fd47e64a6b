# Churn model on wide customer tables. Loss spikes happen with this data, so training can step back to a good state.
import copy

import numpy as np
import torch
import torch.nn as nn

BATCH = 16
HIDDEN = 1536
FEATURES = 400
SPIKE = 6.0


def customers(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, FEATURES), dtype=np.float32)
    w = rng.standard_normal((FEATURES, 1), dtype=np.float32) / 12
    z = x @ w + 0.4 * np.tanh(x[:, :1] * x[:, 1:2])
    y = (z > 0).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def build():
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.SiLU(),
        nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
        nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
        nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
        nn.Linear(HIDDEN, 1),
    )


class Trainer:
    def __init__(self):
        self.x, self.y = customers(20000, 77)
        self.net = build()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-4, fused=True)
        self.crit = nn.BCEWithLogitsLoss()
        self.good = None
        self.level = 0.7
        self.rollbacks = 0

    def rollback(self):
        self.net.load_state_dict(self.good["net"])
        self.opt.load_state_dict(self.good["opt"])
        self.rollbacks += 1

    def one_step(self, step):
        pick = torch.randint(len(self.x), (BATCH,))
        loss = self.crit(self.net(self.x[pick]), self.y[pick])
        value = loss.item()
        if self.good is not None and value > SPIKE * max(self.level, 0.2):
            self.rollback()
            return value
        self.good = {"net": copy.deepcopy(self.net.state_dict()), "opt": copy.deepcopy(self.opt.state_dict())}
        self.level = 0.99 * self.level + 0.01 * value
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return value

    def run(self, steps):
        for step in range(steps):
            value = self.one_step(step)
            if step % 100 == 0:
                print(f"step {step}: loss {value:.4f} (level {self.level:.4f}, {self.rollbacks} rollbacks)", flush=True)


if __name__ == "__main__":
    torch.manual_seed(77)
    Trainer().run(500_000)
