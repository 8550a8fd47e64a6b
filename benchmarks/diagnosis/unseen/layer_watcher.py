import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 24
SIZE = 20
EPOCHS = 4000


class ActivationMonitor:
    """Latest activation statistics of each layer, to see at a glance which of them die or saturate."""

    def __init__(self):
        self.stats = {}
        self.handles = []

    def attach(self, model):
        for name, module in model.named_modules():
            if not list(module.children()):
                self.handles.append(module.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, inputs, output):
            out = output.detach().flatten()
            q = torch.quantile(out, torch.tensor([0.05, 0.5, 0.95]))
            hist = torch.histc(out, bins=32)
            self.stats[name] = {
                "mean": out.mean().item(), "std": out.std().item(), "min": out.min().item(), "max": out.max().item(),
                "p05": q[0].item(), "median": q[1].item(), "p95": q[2].item(),
                "zeros": (out == 0).float().mean().item(), "hist": hist.tolist(),
            }
        return hook

    def report(self):
        for name, s in self.stats.items():
            print(f"    {name:16s} mean {s['mean']:+.3f} std {s['std']:.3f} p05 {s['p05']:+.3f} p95 {s['p95']:+.3f} "
                  f"zeros {s['zeros']:.2f}")


def make_images(n, seed):
    """Discs, bars and crosses at random places in noise."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    label = rng.integers(0, 3, n)
    cy, cx = rng.integers(5, SIZE - 5, (2, n))
    r = rng.integers(2, 5, n)
    dy, dx = np.abs(yy[None] - cy[:, None, None]), np.abs(xx[None] - cx[:, None, None])
    rr = r[:, None, None]
    disc = dy ** 2 + dx ** 2 <= rr ** 2
    bar = (dy <= 1) & (dx <= rr)
    cross = bar | ((dx <= 1) & (dy <= rr))
    image = np.choose(label[:, None, None], [disc, bar, cross]).astype(np.float32)
    image += 0.3 * rng.standard_normal(image.shape, dtype=np.float32)
    return torch.from_numpy(image[:, None]), torch.from_numpy(label)


def conv_block(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


class Net(nn.Module):
    def __init__(self, c=CHANNELS):
        super().__init__()
        self.stem = conv_block(1, c)
        self.body = nn.Sequential(conv_block(c, c), conv_block(c, 2 * c, 2), conv_block(2 * c, 2 * c),
                                  conv_block(2 * c, 4 * c, 2), conv_block(4 * c, 4 * c))
        self.fc = nn.Linear(4 * c, 3)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


def train():
    torch.manual_seed(0)
    x, y = make_images(6000, 0)
    xv, yv = make_images(300, 1)
    net = Net()
    monitor = ActivationMonitor()
    monitor.attach(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    for epoch in range(EPOCHS):
        net.train()
        order = torch.randperm(len(x))
        for i, idx in enumerate(order.split(BATCH)):
            loss = F.cross_entropy(net(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 50 == 0:
                print(f"{epoch}.{i:03d} loss {loss.item():.4f}", flush=True)
        net.eval()
        with torch.no_grad():
            print(f"epoch {epoch} valid accuracy {(net(xv).argmax(1) == yv).float().mean():.3f}")
        monitor.report()


if __name__ == "__main__":
    train()
