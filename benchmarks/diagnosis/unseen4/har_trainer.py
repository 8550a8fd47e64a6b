"""Human activity recognition from wearable recordings (synthetic accelerometer)."""
import logging
import os
import tempfile
import time

import numpy as np
import torch
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("har")

FS = 100
ACTIVITIES = {"sit": 0.2, "walk": 1.8, "run": 2.8, "stairs": 1.4, "cycle": 1.1}


def write_artefacts(path, rows=480, samples=1600, seed=8):
    """Recorded sensor artefacts (taps, cable noise), one per line."""
    rng = np.random.default_rng(seed)
    bank = np.cumsum(rng.normal(0, 0.1, (rows, samples)), axis=1)
    np.savetxt(path, bank - bank.mean(1, keepdims=True), fmt="%.5f", delimiter=",")


class Recordings(Dataset):
    """Fixed windows; artefacts, filtering and scaling are applied on the fly."""

    def __init__(self, artefacts, n=640, seconds=6.4, seed=3):
        self.artefact_path, self.artefacts = artefacts, None
        rng = np.random.default_rng(seed)
        t = np.arange(int(FS * seconds)) / FS
        self.x, self.y = [], []
        freqs = list(ACTIVITIES.values())
        for i in range(n):
            k = i % len(freqs)
            f = freqs[k] * rng.uniform(0.9, 1.1)
            axes = [np.sin(2 * np.pi * f * t + p) + 0.3 * np.sin(4 * np.pi * f * t + p)
                    for p in rng.uniform(0, 6, 6)]
            x = np.stack(axes) + rng.normal(0, 0.8, (6, len(t)))
            self.x.append(x.astype(np.float32))
            self.y.append(k)
        self.sos = signal.butter(4, [0.3, 20], "bandpass", fs=FS, output="sos")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.artefacts is None:
            self.artefacts = np.loadtxt(self.artefact_path, delimiter=",")
        bank, n = self.artefacts, self.x[i].shape[1]
        start = np.random.randint(bank.shape[1] - n)
        x = self.x[i] + 0.3 * bank[np.random.randint(len(bank)), start:start + n]
        x = signal.sosfilt(self.sos, x, axis=1)
        x = x * np.random.uniform(0.8, 1.2, (6, 1))
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), self.y[i]


class ConvNet(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        layers, cin = [], 6
        for cout in (width, width, width * 2, width * 2):
            layers += [nn.Conv1d(cin, cout, 7, stride=2, padding=3), nn.BatchNorm1d(cout), nn.GELU()]
            cin = cout
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(cin, classes)

    def forward(self, x):
        return self.head(self.features(x).amax(-1))


class Experiment:
    def __init__(self, epochs=600, batch_size=32, lr=1e-3):
        torch.manual_seed(0)
        self.epochs = epochs
        artefacts = os.path.join(tempfile.mkdtemp(prefix="har_"), "artefacts.csv")
        write_artefacts(artefacts)
        self.train_set = Recordings(artefacts)
        self.loader = DataLoader(
            self.train_set,
            batch_size=batch_size,
            shuffle=True,
            num_workers=2,
            drop_last=True,
        )
        self.model = ConvNet(len(ACTIVITIES))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, max_lr=lr * 4, total_steps=epochs * len(self.loader))
        self.criterion = nn.CrossEntropyLoss()

    def train_epoch(self):
        self.model.train()
        loss_sum, correct, n = 0.0, 0, 0
        for x, y in self.loader:
            self.opt.zero_grad(set_to_none=True)
            out = self.model(x)
            loss = self.criterion(out, y)
            loss.backward()
            self.opt.step()
            self.sched.step()
            loss_sum += loss.item() * len(y)
            correct += (out.argmax(1) == y).sum().item()
            n += len(y)
        return loss_sum / n, correct / n

    def run(self):
        log.info("training on %d windows, %d batches per epoch", len(self.train_set), len(self.loader))
        start = time.time()
        for epoch in range(1, self.epochs + 1):
            loss, acc = self.train_epoch()
            if epoch % 5 == 0 or epoch == 1:
                log.info("epoch %d/%d loss %.4f acc %.3f elapsed %.0fs",
                         epoch, self.epochs, loss, acc, time.time() - start)
        return self.model


if __name__ == "__main__":
    Experiment().run()
