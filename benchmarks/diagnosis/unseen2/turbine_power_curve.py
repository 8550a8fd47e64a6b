"""Deep residual MLP: power output of a wind turbine from SCADA readings.

The loss spikes now and then at this depth, so we go back to the last good state when it does.
"""
import copy
import math
import time

import torch
from torch import nn

N_FEATURES = 24
WIDTH = 64
DEPTH = 40
BATCH_SIZE = 128
N_STEPS = 40000


def scada(n=200_000):
    g = torch.Generator().manual_seed(5)
    x = torch.randn(n, N_FEATURES, generator=g)
    wind = (x[:, 0] * 3 + 8).clamp(0, 25)
    power = torch.sigmoid((wind - 9) * 0.8) * (1 + 0.1 * torch.tanh(x[:, 1])) + 0.05 * x[:, 2] * x[:, 3]
    return x, power + 0.02 * torch.randn(n, generator=g)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h):
        return h + self.down(torch.relu(self.up(self.norm(h))))


class PowerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(N_FEATURES, WIDTH)
        self.blocks = nn.Sequential(*[Block(WIDTH) for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(-1)


def snapshot(model, opt):
    return copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())


def train():
    torch.manual_seed(0)
    x, y = scada()
    model = PowerNet()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    good = snapshot(model, opt)
    smooth = None
    t0 = time.time()
    for step in range(N_STEPS):
        idx = torch.randint(len(x), (BATCH_SIZE,))
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        value = loss.item()
        if not math.isfinite(value) or (smooth is not None and value > 50 * smooth):
            print(f"step {step}: loss {value:.3g}, going back")
            model.load_state_dict(good[0])
            opt.load_state_dict(copy.deepcopy(good[1]))
            continue
        smooth = value if smooth is None else 0.98 * smooth + 0.02 * value
        opt.zero_grad()
        loss.backward()
        opt.step()
        good = snapshot(model, opt)
        if step % 50 == 0:
            print(f"step {step:6d}  mse {smooth:.5f}  {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    train()
