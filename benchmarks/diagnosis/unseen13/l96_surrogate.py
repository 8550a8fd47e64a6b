"""
Transformer surrogate for Lorenz-96 (K=40): read a noisy window of 64 time
steps, predict every next state.  Based on my old Keras script for the
reservoir-computing comparison.
"""
import csv
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

K, FORCING, DT = 40, 8.0, 0.01
SUBSAMPLE = 5
WINDOW = 64
N_TRAJ, T_TRAJ = 24, 600
OBS_NOISE = 0.1

BATCH = 16
EPOCHS = 40
LR = 3e-4

folder = os.path.join(tempfile.gettempdir(), "l96_surrogate")
os.makedirs(folder, exist_ok=True)


# ------------------------------------------------------------ truth runs
def l96(x):
    return (np.roll(x, -1, -1) - np.roll(x, 2, -1)) * np.roll(x, 1, -1) - x + FORCING


def rk4(x):
    k1 = l96(x)
    k2 = l96(x + 0.5 * DT * k1)
    k3 = l96(x + 0.5 * DT * k2)
    k4 = l96(x + DT * k3)
    return x + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def integrate():
    path = os.path.join(folder, "traj_%d_%d.npy" % (N_TRAJ, T_TRAJ))
    if os.path.exists(path):
        return np.load(path)
    rng = np.random.RandomState(2024)
    x = FORCING + rng.randn(N_TRAJ, K)
    for _ in range(1000):
        x = rk4(x)
    out = []
    for _ in range(T_TRAJ):
        for _ in range(SUBSAMPLE):
            x = rk4(x)
        out.append(x.copy())
    traj = np.array(out).transpose(1, 0, 2)
    np.save(path, traj)
    return traj


class Windows(Dataset):
    def __init__(self, traj, mean, std, stride=3):
        self.traj = traj
        self.mean = mean
        self.std = std
        self.starts = []
        for n in range(traj.shape[0]):
            for t in range(0, traj.shape[1] - WINDOW - 1, stride):
                self.starts.append((n, t))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        n, t = self.starts[i]
        seg = np.array(self.traj[n, t:t + WINDOW + 1])
        seg = (seg - self.mean) / self.std
        # the system is invariant under rotation of the ring
        shift = np.random.randint(K)
        seg = np.roll(seg, shift, axis=1)
        obs = seg[:-1] + OBS_NOISE * np.random.randn(WINDOW, K)
        return torch.tensor(obs).float(), torch.tensor(seg[1:]).float()


# ------------------------------------------------------------ network
class Surrogate(nn.Module):
    def __init__(self, d=128, heads=4, layers=3):
        super().__init__()
        self.inp = nn.Linear(K, d)
        self.pos = nn.Parameter(0.02 * torch.randn(WINDOW, d))
        self.blocks = nn.ModuleList([
            nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0,
                                       batch_first=True, norm_first=True)
            for _ in range(layers)
        ])
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, K)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        h = self.inp(x) + self.pos
        for b in self.blocks:
            h = b(h, src_mask=mask, is_causal=True)
        return x + self.out(self.norm(h))


def evaluate(model, loader):
    model.eval()
    err = []
    with torch.no_grad():
        for x, y in loader:
            p = model(x)
            # only the end of the window, where the context is complete
            err.append(((p[:, -8:] - y[:, -8:]) ** 2).mean().item())
    model.train()
    return np.sqrt(np.mean(err))


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    traj = integrate()
    mean, std = traj.mean(), traj.std()
    train = DataLoader(Windows(traj[:-2], mean, std), batch_size=BATCH, shuffle=True, num_workers=0)
    test = DataLoader(Windows(traj[-2:], mean, std, stride=12), batch_size=BATCH, num_workers=0)

    model = Surrogate()
    n_par = 0
    for p in model.parameters():
        n_par += p.numel()
    print("parameters:", n_par, " windows:", len(train.dataset))

    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-4)
    logfile = open(os.path.join(folder, "log.csv"), "w", newline="")
    log = csv.writer(logfile)
    log.writerow(["step", "loss", "grad_norm", "sec"])

    step, best = 0, np.inf
    for epoch in range(EPOCHS):
        start = time.time()
        for x, y in train:
            pred = model(x)
            loss = ((pred - y) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            gn = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            log.writerow([step, loss.item(), float(gn), time.time() - start])
            logfile.flush()
            if step % 10 == 0:
                print("step %5d  loss %.5f  |g| %.3f" % (step, loss.item(), float(gn)), flush=True)
        rmse = evaluate(model, test)
        if rmse < best:
            best = rmse
            torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
        print("epoch %d done in %.1f s, test rmse (std units) %.4f" % (epoch, time.time() - start, rmse))
    logfile.close()


if __name__ == "__main__":
    main()
