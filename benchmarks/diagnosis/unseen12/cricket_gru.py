"""Species recognition from cricket and katydid chirps (pulse trains).

Every recording is turned into a sequence of pulses (interval, duration, peak
frequency, level, ...) and a causal GRU reads them in order, so the
model can later run on the field recorder pulse by pulse.
"""
import argparse
import gc
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = ["Gryllus campestris", "Acheta domesticus", "Oecanthus pellucens",
           "Tettigonia viridissima", "Nemobius sylvestris", "Gryllotalpa gryllotalpa",
           "Teleogryllus oceanicus", "Phaneroptera falcata"]
N_PULSES, N_FEAT = 64, 8


def synthesise(path, n=6000, seed=21):
    rng = np.random.default_rng(seed)
    k = len(SPECIES)
    proto_gap = rng.uniform(0.02, 0.08, k)
    proto_freq = rng.uniform(3, 8, k)
    chirp_len = rng.integers(2, 9, k)
    y = rng.integers(0, k, n)
    temperature = rng.normal(1, 0.12, (n, 1))
    t = np.arange(N_PULSES)
    pos = t[None] % chirp_len[y][:, None]
    gap = proto_gap[y][:, None] * temperature * (1 + 4 * (pos == 0))
    gap *= np.exp(rng.normal(0, 0.2, gap.shape))
    freq = proto_freq[y][:, None] + 0.1 * pos + rng.normal(0, 0.6, gap.shape)
    level = 60 + 3 * pos + rng.normal(0, 4, gap.shape)
    dur = 0.4 * gap * np.exp(rng.normal(0, 0.2, gap.shape))
    noise = rng.normal(0, 1, (n, N_PULSES, 4))
    x = np.concatenate([np.stack([np.log(gap), freq, level, np.log(dur)], -1), noise], -1)
    np.savez(path, x=x, y=y)


class Chirps(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class ChirpNet(nn.Module):
    def __init__(self, hidden, layers, n_out):
        super().__init__()
        self.inp = nn.Linear(N_FEAT, hidden)
        self.gru = nn.GRU(hidden, hidden, num_layers=layers, batch_first=True)
        self.att = nn.Linear(hidden, 1)
        self.out = nn.Linear(hidden, n_out)

    def forward(self, x):
        h, _ = self.gru(torch.relu(self.inp(x)))
        w = self.att(h).softmax(dim=1)
        return self.out((w * h).sum(1))


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hidden", type=int, default=40)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=80)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(args.threads)

    root = os.path.join(tempfile.gettempdir(), "cricket_gru")
    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, "pulses.npz")
    if not os.path.exists(path):
        synthesise(path)
    z = np.load(path)
    x = (z["x"] - z["x"].mean((0, 1))) / z["x"].std((0, 1))
    x, y = torch.from_numpy(x).float(), torch.from_numpy(z["y"]).long()
    n_val = 400
    loader = DataLoader(Chirps(x[n_val:], y[n_val:]), batch_size=args.batch, shuffle=True,
                        num_workers=0, drop_last=True)

    model = ChirpNet(args.hidden, args.layers, len(SPECIES))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    best = 0.0
    for epoch in range(args.epochs):
        losses, hits, tic = [], 0, time.time()
        for xb, yb in loader:
            opt.zero_grad()
            logits = model(xb)
            loss = criterion(logits, yb)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
            hits += (logits.argmax(1) == yb).sum().item()
        acc = evaluate(model, x[:n_val], y[:n_val])
        print(f"[{epoch:3d}] loss {np.mean(losses):.4f} train {hits / len(losses) / args.batch:.3f} "
              f"val {acc:.3f} ({len(losses) / (time.time() - tic):.1f} it/s)", flush=True)
        if acc > best:
            best = acc
            torch.save(model.state_dict(), os.path.join(root, "best.pt"))
        gc.collect()


if __name__ == "__main__":
    main()
