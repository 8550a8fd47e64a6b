"""Jet flavour tagging from high-level variables (toy): wide MLP, hand-made trainer."""
import copy
import gc
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn


class JetData:
    """Toy jets, classes light / c / b / tau."""

    folder = os.path.join(tempfile.gettempdir(), "jet_flavour")

    def __init__(self, n=200_000, d=44):
        name = os.path.join(self.folder, f"jets_{n}_{d}.npy")
        if not os.path.exists(name):
            os.makedirs(self.folder, exist_ok=True)
            np.save(name, self.generate(n, d))
        table = np.load(name)
        self.x = torch.from_numpy(table[:, :-1].copy())
        self.y = torch.from_numpy(table[:, -1].astype(np.int64))

    @staticmethod
    def generate(n, d):
        rng = np.random.default_rng(125)
        y = rng.integers(0, 4, n)
        centre = rng.normal(0, 0.35, (4, d))
        mix = rng.normal(0, 1 / np.sqrt(d), (4, d, d))
        x = np.empty((n, d))
        for c in range(4):
            k = y == c
            z = rng.standard_normal((k.sum(), d))
            x[k] = centre[c] + z @ mix[c] + 0.3 * np.tanh(z) ** 2
        return np.concatenate([x, y[:, None]], 1).astype(np.float32)

    def epoch(self, batch, part):
        n = int(0.95 * len(self.y))
        ids = torch.randperm(n) if part == "train" else torch.arange(n, len(self.y))
        for k in range(0, len(ids) - batch + 1, batch):
            take = ids[k:k + batch].tolist()
            yield self.x[take], self.y[take]


class Tagger(nn.Module):
    def __init__(self, d=44, h=1024, depth=3, classes=4):
        super().__init__()
        self.first = nn.Linear(d, h)
        self.mid = nn.ModuleList(nn.Linear(h, h) for _ in range(depth))
        self.last = nn.Linear(h, classes)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.mid:
            x = torch.relu(layer(x))
        return self.last(x)


class Watch:
    """Keeps the mean activation of every layer, by hooks."""

    def __init__(self, net):
        self.seen = {}
        for name, m in net.named_modules():
            if isinstance(m, nn.Linear):
                m.register_forward_hook(self.hook(name))

    def hook(self, name):
        def keep(module, inputs, output):
            self.seen[name] = output.detach()[:8].mean()
        return keep


class Trainer:
    def __init__(self, batch=1536, lr=0.02, epochs=400):
        torch.manual_seed(125)
        torch.set_num_threads(os.cpu_count() or 1)
        torch.autograd.set_detect_anomaly(False)
        self.data = JetData()
        self.net = Tagger()
        self.average = copy.deepcopy(self.net)
        self.average.requires_grad_(False)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.watch = Watch(self.net)
        self.batch, self.epochs = batch, epochs
        self.losses = []
        self.steps = 0

    def fold_in(self, decay=0.999):
        with torch.no_grad():
            for a, p in zip(self.average.parameters(), self.net.parameters()):
                a.mul_(decay).add_(p.detach().clone(), alpha=1 - decay)

    def one_step(self, x, y):
        self.net.train()
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward(retain_graph=False)
        for p in self.net.parameters():
            if not torch.isfinite(p.grad.sum()):
                raise FloatingPointError("gradient")
        self.opt.step()
        self.opt.zero_grad(set_to_none=False)
        if self.steps % 10 == 9:
            self.fold_in(0.99)
        right = (out.argmax(1) == y).float().mean().item()
        self.losses.append(loss.item())
        self.steps += 1
        if self.steps % 10 == 0:
            act = " ".join(f"{v.item():.3f}" for v in self.watch.seen.values())
            print(f"{self.steps:7d} loss {np.mean(self.losses[-50:]):.4f} acc {right:.3f} act {act}", flush=True)

    def check(self):
        self.average.eval()
        good = count = 0
        with torch.no_grad():
            for x, y in self.data.epoch(self.batch, "held"):
                good += (self.average(x).argmax(1) == y).sum().item()
                count += len(y)
        return good / count

    def run(self):
        for e in range(self.epochs):
            t = time.time()
            for x, y in self.data.epoch(self.batch, "train"):
                self.one_step(x, y)
            print(f"epoch {e}: held-out accuracy {self.check():.4f}, {time.time() - t:.1f} s")
            torch.save(self.average.state_dict(), os.path.join(JetData.folder, "average.pt"))
            gc.collect()


if __name__ == "__main__":
    Trainer().run()
