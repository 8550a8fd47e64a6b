"""Neural surrogate for heat flow in a plate with uneven conductivity.

Learns T(t1) from T(t0), the conductivity map and the source term.
"""
import os
import tempfile
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OUT = os.path.join(tempfile.gettempdir(), "heat_surrogate")
GRID = 64
NSIM = 900
BS = 16


def simulate(n, rng):
    """Explicit finite differences, all plates at once."""
    def field(sigma):
        z = np.stack([gaussian_filter(rng.standard_normal((GRID, GRID)), sigma, mode="wrap") for _ in range(n)])
        return z / z.std(axis=(1, 2), keepdims=True)

    kappa = np.exp(0.5 * field(6)).astype(np.float32)
    kappa = np.minimum(kappa, 3.0)
    source = (0.02 * field(4)).astype(np.float32)
    t0 = field(3).astype(np.float32)
    t = t0.copy()
    for _ in range(60):
        gx = np.roll(t, -1, 2) - t
        gy = np.roll(t, -1, 1) - t
        fx, fy = kappa * gx, kappa * gy
        t = t + 0.06 * (fx - np.roll(fx, 1, 2) + fy - np.roll(fy, 1, 1)) + source * 0.1
    x = np.stack([t0, kappa - 1.0, source * 50], axis=1)
    return x, t[:, None]


def get_data():
    path = os.path.join(OUT, "plates.npz")
    if not os.path.exists(path):
        os.makedirs(OUT, exist_ok=True)
        rng = np.random.default_rng(42)
        parts = [simulate(100, rng) for _ in range(NSIM // 100)]
        np.savez(path, x=np.concatenate([p[0] for p in parts]), y=np.concatenate([p[1] for p in parts]))
    with np.load(path) as z:
        return torch.from_numpy(z["x"]), torch.from_numpy(z["y"])


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.w = nn.Parameter(torch.randn(2, width, width, modes, modes, dtype=torch.cfloat) / width)

    def forward(self, x):
        m = self.modes
        xf = torch.fft.rfft2(x)
        out = torch.zeros_like(xf)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", xf[:, :, :m, :m], self.w[0])
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", xf[:, :, -m:, :m], self.w[1])
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Operator(nn.Module):
    def __init__(self, width=16, modes=8, depth=3):
        super().__init__()
        self.lift = nn.Conv2d(3, width, 1)
        self.spec = nn.ModuleList(SpectralConv(width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.drop = nn.Sequential(nn.Conv2d(width, 48, 1), nn.GELU(), nn.Conv2d(48, 1, 1))

    def forward(self, x):
        h = self.lift(x)
        for s, c in zip(self.spec, self.local):
            h = nn.functional.gelu(s(h) + c(h))
        return x[:, :1] + self.drop(h)


def relative_l2(pred, true):
    d = (pred - true).flatten(1).norm(dim=1)
    return (d / true.flatten(1).norm(dim=1)).mean()


class Monitor:
    """Shows how the run is going; keep live.png open in an image viewer."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "live.png")
        self.curve = []

    def refresh(self, step, loss, pred, true):
        self.curve.append(loss)
        fig, ax = plt.subplots(1, 3, figsize=(9, 3))
        ax[0].semilogy(self.curve[-500:])
        ax[0].set_title(f"step {step}")
        ax[1].imshow(pred[0, 0].detach().numpy(), cmap="inferno")
        ax[1].set_title("surrogate")
        ax[2].imshow(true[0, 0].numpy(), cmap="inferno")
        ax[2].set_title("solver")
        fig.savefig(self.path, dpi=70)
        plt.close(fig)


def main():
    torch.manual_seed(0)
    x, y = get_data()
    n_test = 60
    train = DataLoader(TensorDataset(x[n_test:], y[n_test:]), batch_size=BS, shuffle=True, drop_last=True)
    xt, yt = x[:n_test], y[:n_test]

    net = Operator()
    print("parameters:", sum(p.numel() for p in net.parameters()))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.985)
    averaged = torch.optim.swa_utils.AveragedModel(net)
    monitor = Monitor(OUT)

    step, began = 0, time.perf_counter()
    for epoch in range(150):
        net.train()
        epoch_loss = []
        for xb, yb in train:
            opt.zero_grad()
            pred = net(xb)
            loss = relative_l2(pred, yb)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            step += 1
            epoch_loss.append(loss.item())
            monitor.refresh(step, epoch_loss[-1], pred, yb)
            if step % 20 == 0:
                print(f"{step:6d}  {epoch_loss[-1]:.4f}  {time.perf_counter() - began:.1f}s", flush=True)
        sched.step()
        averaged.update_parameters(net)
        net.eval()
        with torch.no_grad():
            test = relative_l2(net(xt), yt).item()
        print(f"epoch {epoch}: train {np.mean(epoch_loss):.4f} test {test:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
        if epoch % 10 == 9:
            torch.save({"net": net.state_dict(), "avg": averaged.state_dict()}, os.path.join(OUT, "ckpt.pt"))


if __name__ == "__main__":
    main()
