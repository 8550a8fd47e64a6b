"""P and S arrival picking on three-component seismograms.

A small transformer over patches of the trace gives, for every sample of the trace, the probability of
P arrival, S arrival and neither. Synthetic events only.
"""
import logging

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("picker")

N_SAMPLES = 1024
SAMPLING = 50.0


class SyntheticCatalogue:
    """Events at random distance, with two wave packets over coloured noise."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _packet(self, t, t0, freq, decay):
        lag = np.clip(t - t0, 0, None)
        return np.where(t >= t0, np.exp(-lag / decay) * np.sin(2 * np.pi * freq * lag), 0.0)

    def event(self):
        rng = self.rng
        t = np.arange(N_SAMPLES) / SAMPLING
        tp = rng.uniform(2, 9)
        ts = tp + rng.uniform(1.5, 8)
        noise = np.cumsum(rng.normal(size=(3, N_SAMPLES)), axis=1)
        noise -= np.linspace(0, 1, N_SAMPLES) * noise[:, -1:]
        trace = 0.02 * noise + 0.15 * rng.normal(size=(3, N_SAMPLES))
        p = self._packet(t, tp, rng.uniform(4, 9), 1.2) * rng.uniform(0.6, 2)
        s = self._packet(t, ts, rng.uniform(2, 5), 2.0) * rng.uniform(1, 3)
        trace += np.outer([1.0, 0.3, 0.3], p) + np.outer([0.3, 1.0, 0.9], s)
        trace = (trace - trace.mean(1, keepdims=True)) / trace.std(1, keepdims=True)
        target = np.stack([np.exp(-0.5 * ((t - a) / 0.1) ** 2) for a in (tp, ts)])
        return trace, np.concatenate([target, np.clip(1 - target.sum(0, keepdims=True), 0, 1)])

    def many(self, n):
        pairs = [self.event() for _ in range(n)]
        return np.stack([a for a, _ in pairs]), np.stack([b for _, b in pairs])


class Traces(Dataset):
    def __init__(self, n, seed):
        traces, targets = SyntheticCatalogue(seed).many(n)
        self.traces = torch.from_numpy(traces)
        self.targets = torch.from_numpy(targets)

    def __len__(self):
        return len(self.traces)

    def __getitem__(self, i):
        return self.traces[i], self.targets[i]


class PatchPicker(nn.Module):
    def __init__(self, patch=16, width=128, depth=3, heads=4):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch, width)
        self.place = nn.Parameter(0.02 * torch.randn(N_SAMPLES // patch, width))
        layer = nn.TransformerEncoderLayer(width, heads, 3 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * patch))

    def forward(self, x):
        b = len(x)
        tokens = x.view(b, 3, -1, self.patch).transpose(1, 2).reshape(b, -1, 3 * self.patch)
        out = self.head(self.encoder(self.embed(tokens) + self.place))
        return out.view(b, -1, 3, self.patch).transpose(1, 2).reshape(b, 3, -1)


class Picker:
    def __init__(self, batch=32, lr=1e-3, seed=5):
        torch.manual_seed(seed)
        self.train_loader = DataLoader(Traces(3000, seed), batch_size=batch, shuffle=True, drop_last=True)
        self.test_loader = DataLoader(Traces(200, seed + 1), batch_size=100)
        self.net = PatchPicker().double()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        log.info("%d parameters", sum(p.numel() for p in self.net.parameters()))

    def loss(self, logits, target):
        return -(target * logits.log_softmax(1)).sum(1).mean()

    def train_epoch(self, epoch):
        self.net.train()
        for k, (x, y) in enumerate(self.train_loader):
            loss = self.loss(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if k % 20 == 0:
                log.info("epoch %d batch %d loss %.4f", epoch, k, loss.item())

    @torch.no_grad()
    def residuals(self):
        self.net.eval()
        err = []
        for x, y in self.test_loader:
            p = self.net(x).softmax(1)
            err.append((p[:, :2].argmax(-1) - y[:, :2].argmax(-1)).abs() / SAMPLING)
        return torch.cat(err).median(0).values.tolist()

    def run(self, epochs):
        for e in range(epochs):
            self.train_epoch(e)
            p, s = self.residuals()
            log.info("epoch %d median error P %.2f s, S %.2f s", e, p, s)


if __name__ == "__main__":
    Picker().run(epochs=80)
