"""Sex/age prediction from individual functional connectomes with Chebyshev graph convolutions."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NAME = "connectome_cheb"
N_ROI = 116


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--subjects", type=int, default=600)
    p.add_argument("--features", type=int, default=32)
    p.add_argument("--hidden", type=int, default=32)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--order", type=int, default=3, help="Chebyshev order K")
    p.add_argument("--batch_size", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--keep", type=float, default=0.15, help="share of strongest edges kept")
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def synthesise(args):
    """ROI time series -> correlation matrices, thresholded; node features are band powers."""
    folder = os.path.join(tempfile.gettempdir(), NAME)
    path = os.path.join(folder, f"cohort_{args.subjects}.npz")
    if os.path.exists(path):
        with np.load(path) as f:
            return f["conn"], f["feat"], f["sex"], f["age"]
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    networks = rng.normal(size=(N_ROI, 9))
    ageing = rng.normal(size=(N_ROI, 9)) * 0.3
    dimorph = rng.normal(size=(N_ROI, 9)) * 0.2
    conn = np.empty((args.subjects, N_ROI, N_ROI), np.float32)
    feat = np.empty((args.subjects, N_ROI, args.features), np.float32)
    sex = rng.integers(0, 2, args.subjects)
    age = rng.uniform(-1, 1, args.subjects).astype(np.float32)
    for s in range(args.subjects):
        mixing = networks + age[s] * ageing + sex[s] * dimorph
        bold = mixing @ rng.normal(size=(9, 192)) + 1.5 * rng.normal(size=(N_ROI, 192))
        conn[s] = np.corrcoef(bold)
        power = np.abs(np.fft.rfft(bold, axis=1))[:, 1:args.features + 1]
        feat[s] = np.log1p(power)
    feat = (feat - feat.mean((0, 1))) / feat.std((0, 1))
    tmp = path + ".tmp.npz"
    np.savez(tmp, conn=conn, feat=feat, sex=sex, age=age)
    os.replace(tmp, path)
    return conn, feat, sex, age


def threshold(conn, keep):
    adj = conn.abs()
    adj.diagonal(dim1=1, dim2=2).zero_()
    cut = torch.quantile(adj.flatten(1), 1 - keep, dim=1)
    return torch.where(adj >= cut[:, None, None], adj, 0.0)


def laplacian(adj):
    """Unnormalised Laplacian D - A of a stack of weighted graphs."""
    return torch.diag_embed(adj.sum(-1)) - adj


def rescale(lap):
    """Map the spectrum of each graph to [-1, 1]."""
    lambda_max = torch.linalg.eigvalsh(lap)[:, -1]
    eye = torch.eye(lap.shape[-1], dtype=lap.dtype, device=lap.device)
    return lap * (2.0 / lambda_max)[:, None, None] - eye


class ConnectomeDataset(Dataset):
    def __init__(self, conn, feat, sex, age, keep):
        self.lap = laplacian(threshold(torch.from_numpy(conn), keep))
        self.feat = torch.from_numpy(feat)
        self.sex = torch.from_numpy(sex).float()
        self.age = torch.from_numpy(age)

    def __len__(self):
        return len(self.sex)

    def __getitem__(self, i):
        return self.feat[i], self.lap[i], self.sex[i], self.age[i]


class DenseChebConv(nn.Module):
    """Chebyshev spectral convolution on batches of small dense graphs."""

    def __init__(self, in_channels, out_channels, K):
        super().__init__()
        self.K = K
        self.lins = nn.ModuleList(nn.Linear(in_channels, out_channels, bias=False) for _ in range(K))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x, lap):
        lap_hat = rescale(lap)
        t_prev, t_cur = x, torch.bmm(lap_hat, x)
        out = self.lins[0](t_prev) + self.lins[1](t_cur)
        for lin in self.lins[2:]:
            t_prev, t_cur = t_cur, torch.baddbmm(t_prev, lap_hat, t_cur, beta=-1, alpha=2)
            out = out + lin(t_cur)
        return out + self.bias


class ChebNet(nn.Module):
    def __init__(self, in_channels, hidden, layers, K):
        super().__init__()
        widths = [in_channels] + [hidden] * layers
        self.convs = nn.ModuleList(DenseChebConv(a, b, K) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.gate = nn.Linear(hidden, 1)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 2))

    def forward(self, x, lap):
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            h = F.relu(norm(conv(x, lap)))
            x = h if i == 0 else x + h
        attention = torch.softmax(self.gate(x), dim=1)
        return self.head((attention * x).sum(1)).unbind(-1)


def train(args, model, loader, optimizer, scheduler):
    start, step = time.time(), 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        total, correct, seen = 0.0, 0, 0
        for x, lap, sex, age in loader:
            optimizer.zero_grad()
            sex_logit, age_hat = model(x, lap)
            loss = F.binary_cross_entropy_with_logits(sex_logit, sex) + F.mse_loss(age_hat, age)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(sex)
            correct += ((sex_logit > 0) == sex.bool()).sum().item()
            seen += len(sex)
            step += 1
        scheduler.step()
        print(f"Epoch: {epoch:03d}, Step: {step}, Loss: {total / seen:.4f}, "
              f"Sex acc: {correct / seen:.3f}, {time.time() - start:.1f}s", flush=True)


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    dataset = ConnectomeDataset(*synthesise(args), keep=args.keep)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = ChebNet(args.features, args.hidden, args.layers, args.order)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    train(args, model, loader, optimizer, scheduler)


if __name__ == "__main__":
    main()
