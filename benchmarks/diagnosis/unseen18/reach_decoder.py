"""Decode hand velocity from motor cortex spike counts with a recurrent network.

Each session is an HDF5 file with spike counts in 10 ms bins and the hand
velocity; windows of 1.2 s are drawn from the training part of every session.
"""
import glob
import os
import tempfile
import time

import h5py
import numpy as np
import torch
import torch.nn as nn
from scipy.ndimage import gaussian_filter1d

ROOT = os.path.join(tempfile.gettempdir(), "reach_decoder")
UNITS, BINS, WINDOW = 120, 40000, 120


def make_sessions(n=4):
    os.makedirs(ROOT, exist_ok=True)
    rng = np.random.default_rng(17)
    preferred = rng.uniform(0, 2 * np.pi, UNITS)
    depth = rng.gamma(2.0, 0.4, UNITS)
    baseline = rng.normal(-2.3, 0.7, UNITS)
    lag = rng.integers(4, 15, UNITS)
    for s in range(n):
        velocity = gaussian_filter1d(rng.normal(size=(BINS + 20, 2)), 12, axis=0)
        velocity /= velocity.std()
        speed = np.hypot(*velocity.T)
        angle = preferred + rng.normal(0, 0.15, UNITS)
        drive = velocity[:, :1] * np.cos(angle) + velocity[:, 1:] * np.sin(angle)
        rate = baseline + 0.6 * depth * drive + 0.15 * speed[:, None]
        counts = np.empty((BINS, UNITS), dtype=np.uint8)
        for u in range(UNITS):
            counts[:, u] = np.clip(rng.poisson(np.exp(rate[lag[u]:lag[u] + BINS, u])), 0, 255)
        with h5py.File(os.path.join(ROOT, f"session{s}.h5"), "w") as f:
            f.create_dataset("spikes", data=counts, compression="gzip")
            f.create_dataset("velocity", data=velocity[:BINS].astype(np.float32))
            f.attrs["bin_ms"] = 10
    open(os.path.join(ROOT, "complete"), "w").close()


def load_sessions():
    spikes, velocity = [], []
    for name in sorted(glob.glob(os.path.join(ROOT, "session*.h5"))):
        with h5py.File(name) as f:
            spikes.append(torch.from_numpy(np.sqrt(f["spikes"][:].astype(np.float32))))
            velocity.append(torch.from_numpy(f["velocity"][:]))
    return torch.stack(spikes), torch.stack(velocity)


def windows(spikes, velocity, n, first, last, rng, dropout=0.0):
    """n random windows between the bins first and last."""
    session = rng.integers(0, len(spikes), n)
    start = rng.integers(first, last - WINDOW, n)
    x, y = [], []
    for s, t in zip(session, start):
        piece = spikes[s, t:t + WINDOW]
        if dropout > 0:
            keep = torch.from_numpy((rng.random(UNITS) > dropout).astype(np.float32))
            piece = piece * keep
        x.append(piece)
        y.append(velocity[s, t:t + WINDOW])
    return torch.stack(x), torch.stack(y), torch.from_numpy(session)


class Decoder(nn.Module):
    def __init__(self, sessions, hidden=64):
        super().__init__()
        self.align = nn.Parameter(torch.zeros(sessions, 48))
        self.readin = nn.Linear(UNITS, 48)
        self.rnn = nn.GRU(48, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.readout = nn.Linear(hidden, 2)

    def forward(self, x, session):
        h = torch.tanh(self.readin(x) + self.align[session][:, None])
        h, _ = self.rnn(h)
        return self.readout(h), h


def explained_variance(prediction, target):
    residual = ((prediction - target) ** 2).sum((0, 1))
    total = ((target - target.mean((0, 1))) ** 2).sum((0, 1))
    return (1 - residual / total).mean()


def main():
    if not os.path.exists(os.path.join(ROOT, "complete")):
        make_sessions()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    spikes, velocity = load_sessions()
    split = int(0.85 * BINS)
    val_x, val_y, val_s = windows(spikes, velocity, 128, split, BINS, np.random.default_rng(1))

    model = Decoder(len(spikes))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.7)
    warmup = 30  # bins until the state of the network has settled
    best = -np.inf

    for epoch in range(100):
        start = time.time()
        history = []
        for step in range(150):
            x, y, session = windows(spikes, velocity, 32, 0, split, rng, dropout=0.1)
            prediction, state = model(x, session)
            error = ((prediction[:, warmup:] - y[:, warmup:]) ** 2).mean()
            smooth = (state[:, 1:] - state[:, :-1]).pow(2).mean()
            loss = error + 0.05 * smooth
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            history.append((loss.item(), error.item(), float(norm)))
            if step % 10 == 0:
                print("epoch %d step %d loss %.4f mse %.4f grad %.3f" % (epoch, step, *history[-1]), flush=True)
        scheduler.step()

        model.eval()
        with torch.no_grad():
            prediction, _ = model(val_x, val_s)
            score = explained_variance(prediction[:, warmup:], val_y[:, warmup:]).item()
        model.train()
        if score > best:
            best = score
            torch.save(model.state_dict(), os.path.join(ROOT, "decoder.pt"))
        print(f"epoch {epoch}: explained variance {score:.3f} (best {best:.3f}), {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
