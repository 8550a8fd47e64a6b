"""Speed forecasts for the loop detectors of a road network with a spatio-temporal graph net."""
import sys

import numpy as np
import torch
from torch import nn, optim


class RoadNetwork:
    """Random geometric graph; speeds follow congestion waves that drift along the edges."""

    def __init__(self, sensors=96, steps=3000, seed=0):
        rng = np.random.default_rng(seed)
        self.sensors = sensors
        xy = rng.random((sensors, 2))
        dist = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
        order = dist.argsort(1)
        self.neighbours = [order[v, : rng.integers(4, 9)].tolist() for v in range(sensors)]
        state = rng.normal(size=sensors)
        mix = np.zeros((sensors, sensors))
        for v, ns in enumerate(self.neighbours):
            mix[v, ns] = 1 / len(ns)
        rows = []
        for t in range(steps):
            rush = np.sin(2 * np.pi * t / 288 + 3 * xy[:, 0])
            state = 0.9 * mix @ state + 0.15 * rush + 0.25 * rng.normal(size=sensors)
            rows.append(state + 0.1 * rng.normal(size=sensors))
        x = np.stack(rows)
        self.speeds = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)

    def windows(self, past, ahead):
        u = self.speeds.unfold(0, past + ahead, 1)
        return u[:, :, :past], u[:, :, past:]


class GraphLayer(nn.Module):
    def __init__(self, width, neighbours):
        super().__init__()
        self.neighbours = neighbours
        self.own = nn.Linear(width, width)
        self.near = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def gather(self, h):
        means = [h[:, ns].mean(1) for ns in self.neighbours]
        return torch.stack(means, 1)

    def forward(self, h):
        return h + torch.relu(self.norm(self.own(h) + self.near(self.gather(h))))


class Forecaster(nn.Module):
    def __init__(self, past, ahead, neighbours, width=64, depth=3):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(past, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.where = nn.Parameter(0.02 * torch.randn(len(neighbours), width))
        self.layers = nn.ModuleList(GraphLayer(width, neighbours) for _ in range(depth))
        self.out = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, ahead))

    def forward(self, x):
        h = self.inp(x) + self.where
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


class Experiment:
    PAST, AHEAD, BATCH = 24, 6, 64

    def __init__(self, seed=42):
        torch.manual_seed(seed)
        self.network = RoadNetwork(seed=seed)
        x, y = self.network.windows(self.PAST, self.AHEAD)
        cut = int(0.85 * len(x))
        self.train, self.test = (x[:cut], y[:cut]), (x[cut::4], y[cut::4])
        self.model = Forecaster(self.PAST, self.AHEAD, self.network.neighbours)
        self.optimizer = optim.RAdam(self.model.parameters(), lr=1e-3)

    def batches(self):
        x, y = self.train
        for idx in torch.randperm(len(x)).split(self.BATCH):
            yield x[idx], y[idx]

    def step(self, x, y):
        loss = nn.functional.huber_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()

    def test_error(self):
        self.model.eval()
        with torch.no_grad():
            x, y = self.test
            e = (self.model(x) - y).abs().mean((0, 1))
        self.model.train()
        return e.tolist()

    def run(self, epochs):
        k = 0
        for epoch in range(epochs):
            for x, y in self.batches():
                loss = self.step(x, y)
                if k % 20 == 0:
                    sys.stdout.write(f"iteration {k} loss {loss:.4f}\n")
                    sys.stdout.flush()
                k += 1
            print(f"epoch {epoch} error by horizon:", " ".join(f"{v:.3f}" for v in self.test_error()), flush=True)


if __name__ == "__main__":
    Experiment().run(250)
