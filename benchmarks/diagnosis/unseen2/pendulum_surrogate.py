"""Surrogate of a damped double pendulum: state at t -> state at t + dt."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
BATCH, WIDTH, LAYERS, STEPS = 256, 64, 30, 60_000


def simulate(n=4000, length=40, dt=0.02):
    rng = np.random.default_rng(2)
    state = rng.uniform(-1.5, 1.5, size=(n, 4))

    def deriv(s):
        a, b, va, vb = s.T
        d = a - b
        den = 2 - np.cos(d) ** 2
        acc_a = (-np.sin(d) * (vb ** 2 + va ** 2 * np.cos(d)) - 9.81 * (2 * np.sin(a) - np.sin(b) * np.cos(d))) / den
        acc_b = (np.sin(d) * (2 * va ** 2 + vb ** 2 * np.cos(d)) + 9.81 * 2 * (np.sin(a) * np.cos(d) - np.sin(b))) / den
        return np.stack([va, vb, acc_a - 0.1 * va, acc_b - 0.1 * vb], axis=1)

    path = [state]
    for _ in range(length):
        k1 = deriv(state)
        k2 = deriv(state + 0.5 * dt * k1)
        state = state + dt * k2
        path.append(state)
    path = np.stack(path)
    x = torch.tensor(path[:-1].reshape(-1, 4), dtype=torch.float32)
    y = torch.tensor(path[1:].reshape(-1, 4), dtype=torch.float32)
    return x, (y - x) / dt


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.act = nn.Tanh()

    def forward(self, h):
        return h + self.act(self.lin(h))


model = nn.Sequential(nn.Linear(4, WIDTH), *[Layer(WIDTH) for _ in range(LAYERS)], nn.Linear(WIDTH, 4))


def check(name, t):
    if torch.isnan(t).any():
        raise FloatingPointError(f"nan in {name}")
    if torch.isinf(t).any():
        raise FloatingPointError(f"inf in {name}")


def watch(name):
    def hook(module, args, output):
        check(f"output of {name}", output.detach())
    return hook


for name, module in model.named_modules():
    if not list(module.children()):
        module.register_forward_hook(watch(name))

x, y = simulate()
y_mean, y_std = y.mean(0), y.std(0)
y = (y - y_mean) / y_std
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)

began = time.time()
for step in range(1, STEPS + 1):
    idx = torch.randint(len(x), (BATCH,))
    loss = F.mse_loss(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    for name, p in model.named_parameters():
        check(f"gradient of {name}", p.grad)
    opt.step()
    sched.step()
    for name, p in model.named_parameters():
        check(name, p.detach())
    if step % 50 == 0:
        print(f"step {step:6d} loss {loss.item():.5f} {time.time() - began:6.1f}s", flush=True)
