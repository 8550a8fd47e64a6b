# Learn the t=0 -> t=0.5 solution map of viscous Burgers with a small FNO.
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
rng = np.random.default_rng(3)

N_TRAIN, N_TEST, NX = 768, 64, 256
NU = 0.02
BATCH = 32
EPOCHS = 400


def random_initial(n):
    k = np.fft.rfftfreq(NX, 1.0 / NX)
    amp = np.exp(-((k / 6.0) ** 2))
    coef = (rng.normal(size=(n, k.size)) + 1j * rng.normal(size=(n, k.size))) * amp
    coef[:, 0] = 0
    u = np.fft.irfft(coef, n=NX, axis=1)
    return u / np.abs(u).max(axis=1, keepdims=True)


def solve(u0, t_end=0.5, steps=250):
    """integrating factor + RK2, pseudo-spectral, 2/3 dealiasing"""
    dt = t_end / steps
    k = 2 * np.pi * np.fft.rfftfreq(NX, 1.0 / NX)
    mask = (np.arange(k.size) < k.size * 2 / 3).astype(float)
    decay = np.exp(-NU * k ** 2 * dt)

    def rhs(v):
        u = np.fft.irfft(v, n=NX, axis=1)
        return -0.5j * k * mask * np.fft.rfft(u * u, axis=1)

    v = np.fft.rfft(u0, axis=1)
    for _ in range(steps):
        a = rhs(v)
        b = rhs((v + dt * a) * decay)
        v = v * decay + 0.5 * dt * (a * decay + b)
    return np.fft.irfft(v, n=NX, axis=1)


class SpectralConv(nn.Module):
    def __init__(self, width, modes, dtype):
        super().__init__()
        self.modes = modes
        scale = 1.0 / width
        self.w = nn.Parameter(scale * torch.randn(modes, width, width, 2, dtype=dtype))

    def forward(self, x):
        xf = torch.fft.rfft(x)
        w = torch.view_as_complex(self.w)
        head = torch.bmm(xf[..., : self.modes].permute(2, 0, 1), w).permute(1, 2, 0)
        out = F.pad(head, (0, xf.shape[-1] - self.modes))
        return torch.fft.irfft(out, n=x.shape[-1])


class FNO(nn.Module):
    def __init__(self, width=64, modes=24, depth=4, dtype=torch.float32):
        super().__init__()
        self.lift = nn.Conv1d(2, width, 1, dtype=dtype)
        self.spec = nn.ModuleList(SpectralConv(width, modes, dtype) for _ in range(depth))
        self.skip = nn.ModuleList(nn.Conv1d(width, width, 1, dtype=dtype) for _ in range(depth))
        self.head = nn.Sequential(
            nn.Conv1d(width, 128, 1, dtype=dtype), nn.GELU(), nn.Conv1d(128, 1, 1, dtype=dtype)
        )

    def forward(self, x):
        x = self.lift(x)
        for s, c in zip(self.spec, self.skip):
            x = F.gelu(s(x) + c(x))
        return self.head(x)


t0 = time.time()
u0 = random_initial(N_TRAIN + N_TEST)
u1 = solve(u0)
grid = np.broadcast_to(np.linspace(0, 1, NX, endpoint=False), u0.shape)
x = torch.from_numpy(np.stack([u0, grid], axis=1))
y = torch.from_numpy(u1[:, None])
print(f"solved {len(u0)} trajectories in {time.time() - t0:.1f}s, u0 {tuple(x.shape)}")

x_train, y_train = x[:N_TRAIN], y[:N_TRAIN]
x_test, y_test = x[N_TRAIN:], y[N_TRAIN:]

model = FNO(dtype=x.dtype)
opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)


def rel_l2(pred, target):
    return ((pred - target).norm(dim=-1) / target.norm(dim=-1)).mean()


for epoch in range(EPOCHS):
    model.train()
    t = time.time()
    perm = torch.randperm(N_TRAIN)
    total = 0.0
    for i in range(0, N_TRAIN, BATCH):
        idx = perm[i : i + BATCH]
        opt.zero_grad()
        loss = rel_l2(model(x_train[idx]), y_train[idx])
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    sched.step()
    dt = time.time() - t
    msg = f"epoch {epoch:3d}  rel_l2 {total / N_TRAIN:.4f}  {N_TRAIN / dt:.1f} samples/s"
    if epoch % 20 == 19:
        model.eval()
        with torch.no_grad():
            msg += f"  test {rel_l2(model(x_test), y_test).item():.4f}"
    print(msg, flush=True)
