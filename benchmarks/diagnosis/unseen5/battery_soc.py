# State of charge of a lithium-ion cell from current, voltage and temperature (LSTM on 10-minute windows)
import os
import shutil
import tempfile
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

SEED = 404
WINDOW = 60
BATCH = 128
EPOCHS = 100


def ocv(soc):
    return 3.2 + 0.75 * soc + 0.12 * np.tanh(12 * (soc - 0.08)) - 0.08 * np.exp(-20 * soc)


def drive_cycle(rng, n):
    """Current [A], voltage [V], temperature [C], true state of charge."""
    accel = np.repeat(rng.normal(0.8, 2.2, n // 12 + 1), 12)[:n]
    current = np.convolve(accel, np.ones(5) / 5, mode="same")
    soc = np.clip(rng.uniform(0.6, 1.0) - np.cumsum(current) * 10 / 3600 / 3.0, 0.02, 1.0)
    temp = np.empty(n)
    rc = np.empty(n)
    t, v = rng.uniform(5, 30), 0.0
    ambient = t
    for k in range(n):
        t += 0.004 * current[k] ** 2 - 0.01 * (t - ambient)
        v += 0.08 * (0.02 * current[k] - v)
        temp[k], rc[k] = t, v
    volt = ocv(soc) - (0.035 + 0.0006 * (25 - temp)) * current - rc + rng.normal(0, 0.004, n)
    return np.stack([current / 3, (volt - 3.7) * 3, (temp - 20) / 10], 1).astype(np.float32), soc.astype(np.float32)


def windows(rng, cycles, n=1500, stride=10):
    xs, ys = [], []
    for _ in range(cycles):
        x, y = drive_cycle(rng, n)
        for s in range(0, n - WINDOW, stride):
            xs.append(x[s:s + WINDOW])
            ys.append(y[s + WINDOW - 1])
    return torch.from_numpy(np.stack(xs)), torch.from_numpy(np.array(ys))


def make_model():
    class SocNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 64, num_layers=2, batch_first=True)
            self.fc = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, x):
            h, _ = self.rnn(x)
            return self.fc(h[:, -1]).squeeze(1)

    return SocNet()


def draw_report(history, truth, estimate, path):
    fig, ax = plt.subplots(1, 3, figsize=(12, 3.6))
    ax[0].semilogy(history["step"], history["loss"], lw=0.8)
    ax[0].set(title="training loss", xlabel="step")
    ax[1].plot(history["step"], history["grad"], lw=0.8, color="tab:orange")
    ax[1].set(title="gradient norm", xlabel="step")
    ax[2].scatter(truth, estimate, s=5, alpha=0.5)
    ax[2].plot([0, 1], [0, 1], "k:", lw=1)
    ax[2].set(title="last batch", xlabel="true", ylabel="estimated")
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def validate(model, x, y):
    model.eval()
    with torch.no_grad():
        out = torch.cat([model(b) for b in x.split(500)])
    model.train()
    return (out - y).abs().mean().item()


def train(folder):
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    x, y = windows(rng, 60)
    vx, vy = windows(rng, 6)
    model = make_model()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    history = {"step": [], "loss": [], "grad": []}
    step = 0
    for epoch in range(EPOCHS):
        t0 = time.time()
        for idx in torch.randperm(len(x)).split(BATCH):
            pred = model(x[idx])
            loss = nn.functional.mse_loss(pred, y[idx])
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            history["step"].append(step)
            history["loss"].append(loss.item())
            history["grad"].append(norm.item())
            if step % 50 == 0:
                print(f"{step:6d}  mse {loss.item():.5f}", flush=True)
            if step % 4 == 0:
                draw_report(history, y[idx].numpy(), pred.detach().numpy(), os.path.join(folder, "report.png"))
            step += 1
        error = 100 * validate(model, vx, vy)
        print(f"epoch {epoch}: validation error {error:.2f} % ({time.time() - t0:.0f} s)", flush=True)


if __name__ == "__main__":
    where = tempfile.mkdtemp(prefix="soc_")
    try:
        train(where)
    finally:
        shutil.rmtree(where, ignore_errors=True)
