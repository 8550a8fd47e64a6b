"""A surrogate for a heat-exchanger simulation: 30 design variables in, a 120-point temperature profile out."""
import numpy as np
import torch
from torch import nn, optim

HIDDEN = 512
BATCH = 192
RUNS = 6000


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    design = rng.uniform(-1.0, 1.0, (n, 30))
    z = np.linspace(0.0, 1.0, 120)
    rate = 1.0 + np.exp(design[:, :10].mean(1, keepdims=True))
    hot = 80 + 10 * design[:, 10:11]
    cold = 15 + 4 * design[:, 11:12] * design[:, 12:13]
    ripple = design[:, 13:14] * np.sin(2 * np.pi * z * (1 + design[:, 14:15] ** 2))
    profile = cold + (hot - cold) * np.exp(-rate * z) + ripple
    return design, profile + rng.normal(0.0, 0.05, profile.shape)


class Surrogate(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(30, HIDDEN)
        self.hidden = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(3)])
        self.profile = nn.Linear(HIDDEN, 120)

    def forward(self, x):
        h = torch.relu(self.lift(x))
        for layer in self.hidden:
            h = h + torch.relu(layer(h))
        return self.profile(h)


def to_tensors(design, profile, mean, std):
    return torch.from_numpy(design), torch.from_numpy((profile - mean) / std)


def main():
    torch.manual_seed(55)
    design, profile = simulate(RUNS, 0)
    mean, std = profile.mean(), profile.std()
    x, y = to_tensors(design, profile, mean, std)
    xt, yt = to_tensors(*simulate(400, 1), mean, std)

    model = Surrogate().double()
    optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=20)

    for epoch in range(2000):
        for rows in torch.randperm(RUNS).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            rmse = nn.functional.mse_loss(model(xt), yt).sqrt().item() * std
        plateau.step(rmse)
        print(f"epoch {epoch + 1:4d}   train {loss.item():.5f}   test rmse {rmse:.3f} K", flush=True)


if __name__ == "__main__":
    main()
