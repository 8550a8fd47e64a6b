"""Masked-feature pretraining for tabular data.

    python tabular_denoiser.py [run_dir]

A wide residual MLP learns to reconstruct corrupted columns.  Training can be
resumed: when ``run_dir/last.pt`` exists it is loaded at start.
"""
import os
import shutil
import sys
import tempfile
import time

import torch
import torch.nn as nn

N_ROWS, N_COLS = 20000, 96
HIDDEN, DEPTH = 1024, 3
BATCH = 128
TOTAL_STEPS = 20000
SAVE_INTERVAL = 3
PRINT_INTERVAL = 25


def make_table(seed=11):
    """Correlated columns from a low-rank non-linear factor model."""
    g = torch.Generator().manual_seed(seed)
    factors = torch.randn(N_ROWS, 12, generator=g)
    mix = torch.randn(12, N_COLS, generator=g)
    table = torch.tanh(factors @ mix / 3) + 0.1 * torch.randn(N_ROWS, N_COLS, generator=g)
    return (table - table.mean(0)) / table.std(0)


class ResidualMLP(nn.Module):
    def __init__(self, cols, hidden, depth):
        super().__init__()
        self.inp = nn.Linear(cols * 2, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden * 2), nn.GELU(),
                          nn.Linear(hidden * 2, hidden))
            for _ in range(depth)
        )
        self.out = nn.Linear(hidden, cols)

    def forward(self, x, mask):
        h = self.inp(torch.cat([x * ~mask, mask.to(x.dtype)], dim=1))
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


def save_state(path, model, optimizer, step):
    tmp = path + ".tmp"
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, tmp
    )
    os.replace(tmp, path)


def load_state(path, model, optimizer):
    if not os.path.exists(path):
        return 0
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"resumed from step {state['step']}")
    return state["step"]


def batches(table, batch, seed):
    """Endless stream of shuffled minibatches."""
    g = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(table), generator=g)
        for i in range(0, len(table) - batch + 1, batch):
            yield table[order[i:i + batch]]


def corrupt(x, p=0.25):
    mask = torch.rand_like(x) < p
    return x, mask


def fit(run_dir):
    torch.manual_seed(0)
    last = os.path.join(run_dir, "last.pt")
    table = make_table()
    model = ResidualMLP(N_COLS, HIDDEN, DEPTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    start = load_state(last, model, optimizer)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{n_params / 1e6:.1f}M parameters, run dir {run_dir}")

    stream = batches(table, BATCH, seed=start)
    tic, since = time.time(), start
    for step in range(start + 1, TOTAL_STEPS + 1):
        x, mask = corrupt(next(stream))
        pred = model(x, mask)
        loss = ((pred - x).square() * mask).sum() / mask.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

        if step % PRINT_INTERVAL == 0:
            rate = (step - since) / (time.time() - tic)
            print(f"step {step:6d}  mse {loss.item():.4f}  {rate:.2f} it/s", flush=True)
            tic, since = time.time(), step
        if step % SAVE_INTERVAL == 0:
            save_state(last, model, optimizer, step)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.makedirs(sys.argv[1], exist_ok=True)
        fit(sys.argv[1])
    else:
        folder = tempfile.mkdtemp(prefix="denoiser_")
        try:
            fit(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
