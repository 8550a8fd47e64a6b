"""Keyword spotting on log-mel patches, with activation monitoring."""
import json
import os
import tempfile
import time

import torch
from torch import nn


class ActivationMonitor:
    """Tracks the distribution of the outputs of all conv / linear layers."""

    def __init__(self, model, path, every=500):
        self.path = path
        self.every = every
        self.step = 0
        self.stats = {}
        for name, module in model.named_modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.register_forward_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(module, inputs, output):
            x = output.detach().flatten()
            q = torch.quantile(x[: 2 ** 18], torch.tensor([0.01, 0.5, 0.99]))
            self.stats[name] = {
                "mean": x.mean().item(),
                "std": x.std().item(),
                "dead": (x <= 0).float().mean().item(),
                "q01": q[0].item(),
                "median": q[1].item(),
                "q99": q[2].item(),
            }
        return hook

    def advance(self):
        self.step += 1
        if self.step % self.every == 0:
            with open(self.path, "a") as f:
                f.write(json.dumps({"step": self.step, "layers": self.stats}) + "\n")


class KeywordNet(nn.Module):
    def __init__(self, classes, c=32):
        super().__init__()
        self.conv1 = nn.Conv2d(1, c, (5, 5), stride=(2, 2), padding=2)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)
        self.conv3 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.conv4 = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.fc = nn.Linear(2 * c, classes)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        x = torch.relu(self.conv3(x))
        x = torch.relu(self.conv4(x))
        return self.fc(x.mean((2, 3)))


class Runner:
    def __init__(self, classes=12, clips=3000, batch_size=48, steps=6000):
        torch.manual_seed(0)
        self.classes, self.batch_size, self.steps = classes, batch_size, steps
        self.x, self.y = self.synthesise(clips)
        self.model = KeywordNet(classes).to(memory_format=torch.channels_last)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.out_dir = tempfile.mkdtemp(prefix="kws_")
        self.monitor = ActivationMonitor(self.model, os.path.join(self.out_dir, "activations.jsonl"))

    def synthesise(self, n, mels=40, frames=64):
        g = torch.Generator().manual_seed(21)
        y = torch.randint(0, self.classes, (n,), generator=g)
        templates = torch.randn(self.classes, 1, 10, 16, generator=g)
        templates = nn.functional.interpolate(templates, size=(mels, frames), mode="bilinear")
        x = templates[y] * (0.5 + torch.rand(n, 1, 1, 1, generator=g))
        return x + 1.2 * torch.randn(n, 1, mels, frames, generator=g), y

    def sample_batch(self):
        idx = torch.randint(0, len(self.y), (self.batch_size,))
        x = self.x[idx]
        # SpecAugment-like masking, same bands for the whole batch
        f0, t0 = int(torch.randint(0, 32, ())), int(torch.randint(0, 52, ()))
        x[:, :, f0:f0 + 6] = 0
        x[:, :, :, t0:t0 + 10] = 0
        return x, self.y[idx]

    def run(self):
        print("activation log:", self.monitor.path)
        start, hits = time.time(), 0
        for step in range(1, self.steps + 1):
            x, y = self.sample_batch()
            logits = self.model(x)
            loss = nn.functional.cross_entropy(logits, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.monitor.advance()
            hits += (logits.argmax(1) == y).sum().item()
            if step % 50 == 0:
                print(f"{step:5d}/{self.steps} loss {loss.item():.3f} acc {hits / 50 / self.batch_size:.3f} "
                      f"{time.time() - start:.0f}s", flush=True)
                hits = 0


if __name__ == "__main__":
    Runner().run()
