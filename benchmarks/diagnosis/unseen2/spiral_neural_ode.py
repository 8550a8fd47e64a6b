# Neural ODE on noisy spirals, RK4 by hand.
import sys
import time
from collections import deque

import torch
import torch.nn as nn

N_PATHS = 2000
N_TIMES = 21
DT = 0.05
BATCH = 32

last_places = deque(maxlen=200)


def remember(frame, event, arg):
    # the run hung once over night: keep the last places for the report below
    last_places.append((time.monotonic(), frame.f_code.co_filename, frame.f_lineno))
    return remember


class Field(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inp = nn.Linear(2, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 2)
        self.act = nn.Tanh()

    def forward(self, z):
        h = self.act(self.inp(z))
        h = self.act(self.mid(h))
        return self.out(h)


def rk4_step(f, z, dt):
    k1 = f(z)
    k2 = f(torch.add(z, k1, alpha=dt / 2))
    k3 = f(torch.add(z, k2, alpha=dt / 2))
    k4 = f(torch.add(z, k3, alpha=dt))
    slope = torch.add(torch.add(k1, k4), torch.add(k2, k3), alpha=2)
    return torch.add(z, slope, alpha=dt / 6)


def integrate(f, z0, n):
    states = [z0]
    for _ in range(n - 1):
        states.append(rk4_step(f, states[-1], DT))
    return torch.stack(states, dim=1)


def true_field(z):
    a = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    return (z ** 3) @ a


def make_paths():
    g = torch.Generator().manual_seed(4)
    z0 = torch.rand(N_PATHS, 2, generator=g) * 3 - 1.5
    paths = integrate(true_field, z0, N_TIMES)
    return paths + 0.02 * torch.randn(paths.shape, generator=g)


def train(steps=20000):
    torch.manual_seed(0)
    paths = make_paths()
    field = Field()
    opt = torch.optim.Adam(field.parameters(), lr=2e-3, fused=True)
    start = time.time()
    for step in range(1, steps + 1):
        target = paths[torch.randint(N_PATHS, (BATCH,))]
        pred = integrate(field, target[:, 0], N_TIMES)
        loss = (pred - target).abs().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(field.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"{step:6d}  mae {loss.item():.4f}  {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    sys.settrace(remember)
    try:
        train()
    except KeyboardInterrupt:
        for when, file, line in last_places:
            print(f"{when:.3f} {file}:{line}")
