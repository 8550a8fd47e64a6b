# Forecasting a delayed chaotic system (Mackey-Glass) with a multiplicative LSTM.
import math

import numpy as np
import torch
import torch.nn as nn

HIDDEN = 64
STEPS = 48
BATCH = 64
N_SERIES = 200
LR = 2e-3

torch.autograd.set_detect_anomaly(True)


def mackey_glass(n_series, length, tau=17, seed=3):
    rng = np.random.default_rng(seed)
    history = 1.2 + 0.2 * rng.standard_normal((tau + 1, n_series))
    buf = list(history)
    for _ in range(length + 100):
        delayed, last = buf[-tau - 1], buf[-1]
        buf.append(last + 0.2 * delayed / (1 + delayed ** 10) - 0.1 * last)
    return np.stack(buf[-length:], axis=1).astype(np.float32)


class MLSTM(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.mx = nn.Linear(n_in, n_hidden, bias=False)
        self.mh = nn.Linear(n_hidden, n_hidden, bias=False)
        self.wx = nn.Linear(n_in, 4 * n_hidden)
        self.wm = nn.Linear(n_hidden, 4 * n_hidden, bias=False)
        self.head = nn.Linear(n_hidden, 1)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.xavier_uniform_(p)

    def forward(self, x):
        b, t, _ = x.shape
        h = x.new_zeros(b, self.n_hidden)
        c = x.new_zeros(b, self.n_hidden)
        mx = self.mx(x).unbind(1)
        wx = self.wx(x).unbind(1)
        hs = []
        for k in range(t):
            m = mx[k] * self.mh(h)
            i, f, o, u = (wx[k] + self.wm(m)).chunk(4, dim=-1)
            c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.sigmoid(o) * torch.tanh(c)
            hs.append(h)
        return self.head(torch.stack(hs, 1)).squeeze(-1)


def windows(data, rng):
    rows = rng.integers(0, len(data), BATCH)
    starts = rng.integers(0, data.shape[1] - STEPS - 1, BATCH)
    idx = starts[:, None] + np.arange(STEPS + 1)
    w = torch.from_numpy(data[rows[:, None], idx])
    return w[:, :-1, None], w[:, 1:]


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    data = mackey_glass(N_SERIES, 1500)
    data = (data - data.mean()) / data.std()
    train, valid = data[:-20], data[-20:]
    model = MLSTM(1, HIDDEN)
    opt = torch.optim.RMSprop(model.parameters(), lr=LR)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40_000)
    running = None
    for it in range(40_000):
        x, y = windows(train, rng)
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if it % 50 == 0:
            running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
            print("it %6d  rmse %.5f" % (it, math.sqrt(running)), flush=True)
        if it % 1000 == 999:
            with torch.no_grad():
                x, y = windows(valid, rng)
                print("   valid rmse %.5f" % math.sqrt(nn.functional.mse_loss(model(x), y).item()), flush=True)


if __name__ == "__main__":
    main()
