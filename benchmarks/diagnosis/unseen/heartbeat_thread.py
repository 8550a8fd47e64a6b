"""Galaxy morphology on rendered galaxies: spiral, elliptical, edge-on or merger."""
import logging
import threading
import time

import numpy as np
import torch
from torch import nn

PIXELS = 48
BATCH = 24
CHANNELS = 24

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)-10s %(message)s")
log = logging.getLogger("galaxies")


class Heartbeat(threading.Thread):
    """Says every two seconds that the run is alive, and where it is."""

    def __init__(self, state):
        super().__init__(name="heartbeat", daemon=True)
        self.state = state
        self.quit = threading.Event()

    def run(self):
        last = 0
        while not self.quit.wait(2.0):
            step = self.state["step"]
            log.info("alive, step %d (+%d), loss %.4f", step, step - last, self.state["loss"])
            last = step


class Probe:
    """Norm of what leaves each convolution, looked at once in 200 steps."""

    def __init__(self, model, state):
        self.state, self.norms = state, {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d):
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def look(module, args, out):
            if self.state["step"] % 200 == 0:
                self.norms[name] = out.detach().norm().item()
        return look


def galaxies(n, seed):
    rng = np.random.default_rng(seed)
    grid = np.linspace(-1, 1, PIXELS, dtype=np.float32)
    y, x = np.meshgrid(grid, grid, indexing="ij")
    images, labels = np.empty((n, 1, PIXELS, PIXELS), np.float32), rng.integers(0, 4, n)
    for k, kind in enumerate(labels):
        a = rng.uniform(0, np.pi)
        u, v = x * np.cos(a) + y * np.sin(a), -x * np.sin(a) + y * np.cos(a)
        squeeze = (1.0, 1.6, 5.0, 1.2)[kind]
        r = np.sqrt(u ** 2 + (squeeze * v) ** 2) + 1e-3
        image = np.exp(-4 * r)
        if kind == 0:
            image *= 1 + 0.8 * np.cos(2 * np.arctan2(v, u) + 6 * np.log(r))
        elif kind == 3:
            image += np.exp(-5 * np.hypot(u - rng.uniform(0.2, 0.6), v))
        images[k, 0] = image
    images += 0.08 * rng.standard_normal(images.shape, dtype=np.float32)
    return torch.from_numpy(images), torch.from_numpy(labels)


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))


def main():
    torch.manual_seed(77)
    x, y = galaxies(3000, 0)
    c = CHANNELS
    model = nn.Sequential(block(1, c), block(c, 2 * c), block(2 * c, 4 * c), nn.Conv2d(4 * c, 4 * c, 3, padding=1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * c, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    state = {"step": 0, "loss": float("nan")}
    Probe(model, state)
    Heartbeat(state).start()
    began = time.time()
    for epoch in range(400):
        right = torch.zeros(())
        for rows in torch.randperm(len(x)).split(BATCH):
            out = model(x[rows])
            loss = nn.functional.cross_entropy(out, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (out.argmax(1) == y[rows]).sum()
            state["step"] += 1
            if state["step"] % 20 == 0:
                state["loss"] = loss.item()
        log.info("epoch %d, train accuracy %.3f, %.0f s", epoch, right.item() / len(x), time.time() - began)


if __name__ == "__main__":
    main()
