# Latent ODE surrogate for a stirred-tank reaction network: the learned vector
# field is integrated with RK-like steps, whole rollout compiled.
import time

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)

SPECIES, CONDS, HIDDEN, N_STEPS, DT = 6, 3, 32, 12, 0.1
BATCH, STEPS, N_RUNS = 64, 40000, 4096


def simulate(n, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0, 1, (n, SPECIES))
    cond = rng.uniform(0.5, 1.5, (n, CONDS))
    traj = [c]
    sub = 8
    for _ in range(N_STEPS):
        for _ in range(sub):
            r1 = cond[:, 0] * c[:, 0] * c[:, 1]
            r2 = 0.8 * cond[:, 1] * c[:, 2] * c[:, 3]
            r3 = 0.5 * cond[:, 2] * c[:, 4]
            r4 = 0.3 * c[:, 5] ** 2
            dc = np.stack([-r1 + r3, -r1 + r4, r1 - r2, r3 - r2, r2 - r3, r2 - r4], 1)
            c = np.clip(c + DT / sub * dc, 0, None)
        traj.append(c)
    return (
        torch.as_tensor(np.stack(traj, 1), dtype=torch.float32),
        torch.as_tensor(cond, dtype=torch.float32),
    )


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(SPECIES + CONDS, HIDDEN)
        self.w2 = nn.Linear(HIDDEN, HIDDEN)
        self.w3 = nn.Linear(HIDDEN, SPECIES)
        self.scale = nn.Parameter(torch.ones(SPECIES))

    def forward(self, c, cond):
        h = torch.cat([c, cond], 1)
        h = torch.tanh(self.w1(h))
        h = h + torch.sin(self.w2(h))
        return self.scale * torch.tanh(self.w3(h))


class Rollout(nn.Module):
    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, c, cond):
        out = []
        for k in range(N_STEPS):
            k1 = self.field(c, cond)
            c = c + DT * k1
            c = torch.where(c > 0, c, 0.01 * c)
            total = c.sum(1).mean().item()
            if total > 50.0:
                print(f"  mass is running away at step {k}: {total:.1f}")
            out.append(c)
        return torch.stack(out, 1)


t0 = time.time()
traj, cond = simulate(N_RUNS)
print(f"simulated {N_RUNS} runs in {time.time() - t0:.1f}s", tuple(traj.shape))

model = Rollout(Field())
rollout = torch.compile(model)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 8000, 0.5)

window, tic = 0.0, time.time()
for step in range(1, STEPS + 1):
    idx = torch.randint(0, N_RUNS, (BATCH,))
    target = traj[idx]
    pred = rollout(target[:, 0], cond[idx])
    loss = (pred - target[:, 1:]).square().mean() + 0.1 * (pred[:, -1] - target[:, -1]).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    window += loss.item()
    if step % 50 == 0:
        now = time.time()
        print(f"{step:6d}  loss {window / 50:.5f}  {50 * BATCH / (now - tic):.0f} runs/s", flush=True)
        window, tic = 0.0, now
