"""Heartbeat classification (5 rhythm classes) with a 1-D CNN."""
import numpy as np
import torch
import torch.nn as nn

LENGTH = 512
N_TRAIN, N_VAL = 40000, 4000
CONFIG = dict(batch_size=64, lr=1e-3, epochs=30, log_every=25, eval_every=30)


def synth_ecg(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, n)
    t = np.linspace(0, 1, LENGTH, dtype=np.float32)
    x = 0.1 * rng.standard_normal((n, LENGTH), dtype=np.float32)
    rate = (3 + y + rng.uniform(-0.4, 0.4, n)).astype(np.float32)[:, None]
    shift = rng.random((n, 1), dtype=np.float32)
    beat = (t * rate + shift) % 1.0
    x += np.exp(-((beat - 0.5) / 0.03) ** 2)                                   # QRS
    x += 0.3 * np.exp(-((beat - 0.75) / 0.08) ** 2)                            # T wave
    return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)


def layer(cin, cout, k, stride):
    return [nn.Conv1d(cin, cout, k, stride=stride, padding=k // 2, bias=False),
            nn.BatchNorm1d(cout), nn.ReLU(inplace=True)]


class ECGNet(nn.Sequential):
    def __init__(self, classes=5):
        super().__init__(
            *layer(1, 32, 7, 2),
            *layer(32, 64, 5, 2),
            *layer(64, 64, 5, 1),
            *layer(64, 128, 5, 2),
            *layer(128, 128, 3, 1),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, classes))


class Trainer:
    def __init__(self, model, train_data, val_data, cfg):
        self.model = model
        self.x, self.y = train_data
        self.vx, self.vy = val_data
        self.cfg = cfg
        self.opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
        self.loss = nn.CrossEntropyLoss()
        self.best = 0.0

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        correct = 0
        for x, y in zip(self.vx.split(250), self.vy.split(250)):
            correct += (self.model(x).argmax(1) == y).sum().item()
        self.model.train()
        return correct / len(self.vy)

    def fit(self):
        step = 0
        self.model.train()
        for epoch in range(self.cfg["epochs"]):
            for idx in torch.randperm(len(self.x)).split(self.cfg["batch_size"]):
                loss = self.loss(self.model(self.x[idx]), self.y[idx])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                step += 1
                if step % self.cfg["log_every"] == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
                if step % self.cfg["eval_every"] == 0:
                    acc = self.evaluate()
                    self.best = max(self.best, acc)
                    print(f"  val acc {acc:.4f} (best {self.best:.4f})", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(ECGNet(), synth_ecg(N_TRAIN, 0), synth_ecg(N_VAL, 1), CONFIG).fit()
