"""Two-day quantile forecast for all feeders of one substation area (grid planning team)."""
import collections
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)

DATA = os.path.join(tempfile.gettempdir(), "feeder_quantiles")
FEEDERS = 64
QUANTILES = torch.tensor([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
HISTORY = 192          # two days of quarter hours
HORIZON = 192          # two days, too
HIDDEN = 128
BATCH_SIZE = 20
MAX_EPOCHS = 60
CURRICULUM_EPOCHS = 5  # the late quarter hours are faded in


def load_series():
    """Quarter-hourly load in MW, (time, feeder). Synthetic stand-in for the SCADA export."""
    file = os.path.join(DATA, "load.npy")
    if not os.path.isfile(file):
        os.makedirs(DATA, exist_ok=True)
        rs = np.random.RandomState(7)
        t = np.arange(96 * 45)[:, None]
        base = rs.uniform(1, 6, FEEDERS)
        phase = rs.uniform(-6, 6, FEEDERS)
        day = 1 + 0.4 * np.sin(2 * np.pi * (t - 30 - phase) / 96) + 0.2 * np.sin(4 * np.pi * (t + phase) / 96)
        week = np.where((t // 96) % 7 >= 5, rs.uniform(0.6, 1.1, FEEDERS), 1.0)
        ar = np.zeros((len(t), FEEDERS))
        for i in range(1, len(t)):
            ar[i] = 0.97 * ar[i - 1] + rs.normal(0, 0.03, FEEDERS)
        np.save(file, (base * (day * week + ar)).astype(np.float32))
    return np.load(file)


def windows(series):
    mean, std = series.mean(0), series.std(0)
    z = torch.from_numpy((series - mean) / std)
    starts = torch.arange(0, len(z) - HISTORY - HORIZON, 2)
    x = torch.stack([z[s:s + HISTORY] for s in starts])
    y = torch.stack([z[s + HISTORY:s + HISTORY + HORIZON] for s in starts])
    clock = 2 * math.pi * (starts % 96).float() / 96
    return x, y, torch.stack([clock.sin(), clock.cos()], 1)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        # four quarter hours at a time
        self.encoder = nn.GRU(4 * FEEDERS, HIDDEN, batch_first=True)
        self.clock = nn.Linear(2, HIDDEN)
        self.steps = nn.Parameter(0.1 * torch.randn(HORIZON, HIDDEN))
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Dropout(0.05),
                                 nn.Linear(HIDDEN, FEEDERS * len(QUANTILES)))

    def forward(self, x, clock):
        x = x.reshape(len(x), HISTORY // 4, 4 * FEEDERS)
        _, h = self.encoder(x)
        h = h[-1] + self.clock(clock)
        z = h[:, None] + self.steps
        out = self.mlp(z)
        return out.view(len(x), HORIZON, FEEDERS, len(QUANTILES))


def pinball(q_hat, y):
    """(batch, feeder, quantile) against (batch, feeder)"""
    err = y[..., None] - q_hat
    return torch.maximum(QUANTILES * err, (QUANTILES - 1) * err).mean()


def crossing(q_hat):
    # quantiles must not cross, asked for by the traders
    return torch.relu(q_hat[..., :-1] - q_hat[..., 1:]).mean()


def horizon_weights(epoch):
    """1 for the near quarter hours, the far ones come in over the first epochs."""
    reach = min(1.0, (epoch + 1) / CURRICULUM_EPOCHS)
    pos = torch.linspace(0, 1, HORIZON)
    return torch.sigmoid((reach - pos) * 20 + 2)


def horizon_loss(q_hat, y, weights, monitor):
    """Weighted loss over the horizon; the dashboard shows the pinball loss of each quarter hour."""
    total = 0.0
    for t in range(HORIZON):
        step = q_hat[:, t]
        pb = pinball(step, y[:, t])
        monitor[t] += pb.detach()
        total = total + weights[t] * (pb + 0.1 * crossing(step))
    return total / weights.sum()


def coverage(model, x, y, clock):
    model.eval()
    with torch.no_grad():
        q = model(x, clock)
    model.train()
    return ((y >= q[..., 1]) & (y <= q[..., -2])).float().mean().item()


def main():
    x, y, clock = windows(load_series())
    cut = int(0.92 * len(x))
    train = DataLoader(TensorDataset(x[:cut], y[:cut], clock[:cut]), batch_size=BATCH_SIZE, shuffle=True)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, MAX_EPOCHS)
    history = collections.deque(maxlen=10)
    for epoch in range(MAX_EPOCHS):
        weights = horizon_weights(epoch)
        monitor = torch.zeros(HORIZON)
        running = 0.0
        for xb, yb, cb in train:
            optimizer.zero_grad()
            loss = horizon_loss(model(xb, cb), yb, weights, monitor)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
        scheduler.step()
        monitor /= len(train)
        cov = coverage(model, x[cut:], y[cut:], clock[cut:])
        history.append(running / len(train))
        print(f"epoch {epoch:3d}: loss {history[-1]:.4f}  +1h {monitor[3]:.4f}  +6h {monitor[23]:.4f}  "
              f"+24h {monitor[95]:.4f}  +48h {monitor[191]:.4f}  80% band covers {cov:.2f}", flush=True)
        if len(history) == 10 and history[0] - history[-1] < 1e-5:
            print("no more progress")
            break
    torch.save(model.state_dict(), os.path.join(DATA, "model.pt"))


if __name__ == "__main__":
    main()
