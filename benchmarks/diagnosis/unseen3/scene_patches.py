import random
import time
from collections import defaultdict

import numpy as np
import skimage.data
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage.color import gray2rgb

PHOTOS = ["astronaut", "coffee", "chelsea", "rocket", "camera", "coins", "page", "brick", "grass", "gravel"]


def load_patches(per_photo=300, size=32, seed=0):
    rng = np.random.default_rng(seed)
    xs, ys = [], []
    for label, name in enumerate(PHOTOS):
        try:
            img = getattr(skimage.data, name)()
        except Exception as exc:  # some photos are not bundled
            print("skip", name, type(exc).__name__)
            continue
        if img.ndim == 2:
            img = gray2rgb(img)
        h, w = img.shape[:2]
        for _ in range(per_photo):
            r, c = rng.integers(0, h - size), rng.integers(0, w - size)
            xs.append(img[r : r + size, c : c + size, :3])
            ys.append(label)
    x = torch.from_numpy(np.stack(xs)).permute(0, 3, 1, 2).float().div(255).contiguous()
    return x, torch.tensor(ys)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.act = nn.ReLU()
        self.down = nn.Conv2d(cin, cout, 1, stride, bias=False) if (stride != 1 or cin != cout) else nn.Identity()

    def forward(self, x):
        y = self.act(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.act(y + self.down(x))


class PatchNet(nn.Module):
    def __init__(self, n_classes, widths=(16, 32, 64)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        blocks, cin = [], widths[0]
        for i, w in enumerate(widths):
            blocks += [BasicBlock(cin, w, 1 if i == 0 else 2), BasicBlock(w, w, 1)]
            cin = w
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(cin, n_classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class LayerMonitor:
    """Keeps activation health numbers per layer, printed at the end of an epoch."""

    def __init__(self, model):
        self.model = model
        self.stats = defaultdict(list)
        self.handles = []

    def attach(self):
        for name, m in self.model.named_modules():
            if len(list(m.children())) == 0:
                self.handles.append(m.register_forward_hook(self._hook(name)))

    def detach(self):
        for h in self.handles:
            h.remove()
        self.handles = []

    def _hook(self, name):
        def fn(module, inputs, output):
            with torch.no_grad():
                a = output.detach()
                self.stats[name].append(
                    {
                        "mean": a.mean().item(),
                        "std": a.std().item(),
                        "dead": (a == 0).float().mean().item(),
                        "kurt": (((a - a.mean()) / (a.std() + 1e-6)) ** 4).mean().item(),
                        "absmax": a.abs().max().item(),
                    }
                )
        return fn

    def report(self):
        for name in list(self.stats)[::5]:
            rows = self.stats[name][-50:]
            print("   ", f"{name:24s}", " ".join(f"{k}={np.mean([r[k] for r in rows]):.3f}" for k in rows[0]))
        self.stats.clear()


class Trainer:
    def __init__(self, model, x, y, batch_size=32, lr=0.05, epochs=200):
        self.model, self.x, self.y = model, x, y
        self.bs, self.epochs = batch_size, epochs
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
        self.monitor = LayerMonitor(model)

    def augment(self, x):
        if random.random() < 0.5:
            x = x.flip(3)
        return x

    def fit(self):
        self.monitor.attach()
        for epoch in range(self.epochs):
            order = torch.randperm(len(self.x))
            tic, seen = time.time(), 0
            for step, idx in enumerate(order.split(self.bs)):
                loss = F.cross_entropy(self.model(self.augment(self.x[idx])), self.y[idx])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                seen += len(idx)
                if step % 20 == 19:
                    print(f"epoch {epoch} step {step + 1} loss {loss.item():.3f} {seen / (time.time() - tic):.1f} img/s", flush=True)
            self.monitor.report()


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    x, y = load_patches()
    print("patches", tuple(x.shape), "classes", len(y.unique()))
    Trainer(PatchNet(len(PHOTOS)), x, y).fit()
