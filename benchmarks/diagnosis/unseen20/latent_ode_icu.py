"""Latent ODE for irregularly sampled physiological series (long-format CSV).

Encoder: GRU run backwards over the observations with time gaps; decoder: a neural ODE in
latent space, integrated by RK4 to the times of the observations (ELBO, after Rubanova et al.).
"""
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CHANNELS = ["hr", "map", "spo2", "resp"]
LATENT, HIDDEN = 8, 48
BATCH_SIZE = 32
T_MAX = 24.0


def make_csv(path, n_patients=600):
    rng = np.random.default_rng(0)
    rows = []
    for pid in range(n_patients):
        n_obs = rng.integers(25, 60)
        times = np.sort(rng.choice(int(T_MAX * 4), n_obs, replace=False)) / 4  # charted each 15 min
        rate, phase = rng.uniform(0.2, 0.6), rng.uniform(0, 2 * np.pi)
        decay, amp = rng.uniform(0.0, 0.12), rng.uniform(0.5, 1.5)
        s = amp * np.exp(-decay * times) * np.sin(rate * times + phase)
        c = amp * np.exp(-decay * times) * np.cos(rate * times + phase)
        values = {"hr": 85 + 15 * s, "map": 75 - 10 * c, "spo2": 96 + 1.5 * np.tanh(c),
                  "resp": 18 + 4 * s * c}
        for name, v in values.items():
            noisy = v * (1 + rng.normal(0, 0.01, n_obs))
            keep = rng.random(n_obs) < 0.7
            rows.append(pd.DataFrame({"patient": pid, "hour": times[keep], "variable": name,
                                      "value": noisy[keep].round(2)}))
    pd.concat(rows).to_csv(path, index=False)


class ICUDataset(Dataset):
    def __init__(self, table, patients, mean, std):
        wide = table.pivot_table(index=["patient", "hour"], columns="variable", values="value")
        wide = (wide[CHANNELS] - mean) / std
        self.series = []
        for pid in patients:
            frame = wide.loc[pid]
            x = torch.tensor(frame.to_numpy(), dtype=torch.float32)
            mask = (~x.isnan()).float()
            t = torch.tensor(frame.index.to_numpy(), dtype=torch.float32) / T_MAX
            self.series.append((t, x.nan_to_num(), mask))

    def __len__(self):
        return len(self.series)

    def __getitem__(self, i):
        return self.series[i]


def collate(batch):
    """Bring all series of the batch to the union of their time points."""
    times = torch.unique(torch.cat([t for t, _, _ in batch]))
    x = torch.zeros(len(batch), len(times), len(CHANNELS))
    mask = torch.zeros_like(x)
    for b, (t, values, m) in enumerate(batch):
        idx = torch.searchsorted(times, t)
        x[b, idx] = values
        mask[b, idx] = m
    return times, x, mask


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.Tanh(),
                                 nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
                                 nn.Linear(HIDDEN, LATENT))

    def forward(self, t, z):
        return self.net(z)


def odeint_rk4(func, z0, times, max_step=0.02):
    """Solution at each of the times, with RK4 steps no longer than max_step."""
    out, z, t = [], z0, torch.tensor(0.0)
    for t_next in times:
        n = max(1, int(torch.ceil((t_next - t) / max_step)))
        h = (t_next - t) / n
        for _ in range(n):
            k1 = func(t, z)
            k2 = func(t + h / 2, z + h * k1 / 2)
            k3 = func(t + h / 2, z + h * k2 / 2)
            k4 = func(t + h, z + h * k3)
            z = z + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
            t = t + h
        out.append(z)
    return torch.stack(out, dim=1)


class LatentODE(nn.Module):
    def __init__(self):
        super().__init__()
        n = len(CHANNELS)
        self.cell = nn.GRUCell(2 * n + 1, HIDDEN)
        self.to_latent = nn.Linear(HIDDEN, 2 * LATENT)
        self.func = ODEFunc()
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n))

    def encode(self, times, x, mask):
        h = torch.zeros(len(x), HIDDEN)
        gaps = torch.diff(times, prepend=times[:1])
        for i in reversed(range(len(times))):
            inp = torch.cat([x[:, i], mask[:, i], gaps[i].expand(len(x), 1)], dim=1)
            observed = mask[:, i].any(dim=1, keepdim=True)
            h = torch.where(observed, self.cell(inp, h), h)
        return self.to_latent(h).chunk(2, dim=1)

    def forward(self, times, x, mask):
        mean, logvar = self.encode(times, x, mask)
        z0 = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        return self.decoder(odeint_rk4(self.func, z0, times)), mean, logvar


def elbo(pred, x, mask, mean, logvar, kl_weight, noise_std=0.1):
    log_lik = -0.5 * (mask * (pred - x) ** 2).sum((1, 2)) / noise_std ** 2
    kl = 0.5 * (mean ** 2 + logvar.exp() - logvar - 1).sum(1)
    return (log_lik - kl_weight * kl).mean()


def main():
    torch.manual_seed(0)
    make_csv("icu_long.csv")
    table = pd.read_csv("icu_long.csv")
    stats = table.groupby("variable")["value"].agg(["mean", "std"]).loc[CHANNELS]
    train = ICUDataset(table, range(500), stats["mean"], stats["std"])
    test = ICUDataset(table, range(500, 600), stats["mean"], stats["std"])
    train_loader = DataLoader(train, BATCH_SIZE, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test, BATCH_SIZE, collate_fn=collate)
    model = LatentODE()
    optimizer = torch.optim.Adamax(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    for epoch in range(200):
        kl_weight = 1 - 0.97 ** epoch
        for times, x, mask in train_loader:
            optimizer.zero_grad()
            pred, mean, logvar = model(times, x, mask)
            loss = -elbo(pred, x, mask, mean, logvar, kl_weight)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        scheduler.step()
        with torch.no_grad():
            errors = []
            for times, x, mask in test_loader:
                pred = model(times, x, mask)[0]
                errors.append(((pred - x) ** 2 * mask).sum().item() / mask.sum().item())
        print(f"epoch {epoch:3d}  loss {loss.item():.2f}  test MSE {np.mean(errors):.4f}",
              flush=True)


if __name__ == "__main__":
    main()
