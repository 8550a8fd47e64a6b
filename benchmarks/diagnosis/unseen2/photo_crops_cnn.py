"""Which photograph is this 48x48 crop from?  (small conv net, activations watched)"""
import os

import numpy as np
import torch
import torch.nn as nn
from skimage import data

SIZE, PER_IMAGE, BATCH, STEPS, LOG_EVERY = 48, 4000, 32, 12000, 500


def prepare(path="crops48.npz"):
    if not os.path.exists(path):
        rng = np.random.default_rng(0)
        xs, ys = [], []
        for k, im in enumerate([data.astronaut(), data.coffee(), data.chelsea()]):
            for _ in range(PER_IMAGE):
                r = rng.integers(0, im.shape[0] - SIZE)
                c = rng.integers(0, im.shape[1] - SIZE)
                xs.append(im[r:r + SIZE, c:c + SIZE].transpose(2, 0, 1))
                ys.append(k)
        np.savez(path, x=np.stack(xs), y=np.array(ys))
    with np.load(path) as f:
        return torch.from_numpy(f["x"]), torch.from_numpy(f["y"])


class ActivationMonitor:
    """histogram, norm and share of zeros of what every layer puts out"""

    def __init__(self, model):
        self.stats = {}
        self.step = 0
        for name, m in model.named_modules():
            if not list(m.children()):
                m.register_forward_hook(self.hook(name))

    def hook(self, name):
        def fn(module, inputs, output):
            a = output.detach().flatten()
            self.stats[name] = dict(counts=torch.histc(a, bins=64), norm=a.norm().item(), mean=a.mean().item(),
                                    std=a.std().item(), zeros=(a == 0).float().mean().item())
        return fn

    def write(self, path="activations.log"):
        with open(path, "a") as f:
            for name, s in self.stats.items():
                f.write(f"{self.step} {name} norm={s['norm']:.3f} mean={s['mean']:.4f} std={s['std']:.4f} "
                        f"zeros={s['zeros']:.3f} hist={s['counts'].tolist()}\n")


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


def main():
    torch.manual_seed(0)
    x, y = prepare()
    model = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, 3))
    monitor = ActivationMonitor(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    lossf = nn.CrossEntropyLoss()

    for step in range(1, STEPS + 1):
        monitor.step = step
        idx = torch.randint(len(x), (BATCH,))
        xb = x[idx].float().div_(127.5).sub_(1)
        loss = lossf(model(xb), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % LOG_EVERY == 0:
            monitor.write()
        if step % 25 == 0:
            print("step", step, "loss %.4f" % loss.item(), flush=True)


if __name__ == "__main__":
    main()
