"""Keyword spotting with two layers of adaptive leaky neurons (rate code, soft spikes, BPTT)."""
import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def build_parser():
    p = argparse.ArgumentParser("spiking_keywords")
    p.add_argument("--samples", type=int, default=2048)
    p.add_argument("--time-steps", type=int, default=220)
    p.add_argument("--mels", type=int, default=40)
    p.add_argument("--neurons", type=int, default=128)
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--report", type=int, default=5)
    return p


def synth_keywords(args):
    """Mel-like pictures: each class is a set of gliding formants, with jitter in time, pitch and loudness."""
    folder = Path(tempfile.gettempdir()) / "spiking_keywords"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"mels_{args.samples}_{args.time_steps}_{args.mels}.npz"
    if not file.exists():
        rng = np.random.default_rng(11)
        t = np.linspace(0, 1, args.time_steps)[None, :, None]
        f = np.arange(args.mels)[None, None, :]
        label = rng.integers(0, args.classes, args.samples)
        start = rng.uniform(4, args.mels - 4, (args.classes, 3))
        slope = rng.uniform(-14, 14, (args.classes, 3))
        mel = rng.exponential(0.08, (args.samples, args.time_steps, args.mels))
        for k in range(3):
            track = start[label, k][:, None, None] + slope[label, k][:, None, None] * t
            track = track + rng.normal(0, 1.0, (args.samples, 1, 1))
            onset = rng.uniform(0.0, 0.25, (args.samples, 1, 1))
            voiced = (t > onset) & (t < onset + 0.7)
            mel += rng.uniform(0.5, 1.0, (args.samples, 1, 1)) * voiced * np.exp(-0.5 * ((f - track) / 1.3) ** 2)
        temporary = folder / f"{os.getpid()}.npz"
        np.savez(temporary, mel=mel.astype(np.float32), label=label)
        temporary.rename(file)
    with np.load(file) as z:
        return torch.from_numpy(z["mel"]), torch.from_numpy(z["label"])


class AdaptiveLeaky(nn.Module):
    """Membrane with leak, soft spike and a threshold that rises with the neuron's own activity."""

    def __init__(self, inputs, neurons, slope=4.0):
        super().__init__()
        self.synapse = nn.Linear(inputs, neurons)
        self.leak = nn.Parameter(torch.full((neurons,), 2.0))
        self.slope = slope
        self.adapt = 0.9

    def step(self, current, membrane, fatigue, leak):
        membrane = torch.addcmul(current, membrane, leak)
        spike = torch.sigmoid(self.slope * (membrane - fatigue))
        membrane = membrane - spike
        fatigue = torch.lerp(spike, fatigue, self.adapt)
        return spike, membrane, fatigue

    def forward(self, x):
        current = self.synapse(x)
        leak = torch.sigmoid(self.leak)
        membrane = current.new_zeros(current.shape[0], current.shape[2])
        fatigue = torch.ones_like(membrane)
        spikes = []
        for t in range(current.shape[1]):
            spike, membrane, fatigue = self.step(current[:, t], membrane, fatigue, leak)
            spikes.append(spike)
        return torch.stack(spikes, dim=1)


class SpikingClassifier(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.hidden1 = AdaptiveLeaky(args.mels, args.neurons)
        self.hidden2 = AdaptiveLeaky(args.neurons, args.neurons)
        self.readout = nn.Linear(args.neurons, args.classes)

    def forward(self, mel):
        rate = self.hidden2(self.hidden1(mel)).mean(dim=1)
        return self.readout(rate), rate


class Trainer:
    def __init__(self, args):
        self.args = args
        mel, label = synth_keywords(args)
        held_out = len(mel) // 8
        self.train_loader = DataLoader(TensorDataset(mel[held_out:], label[held_out:]), args.batch_size,
                                       shuffle=True, drop_last=True)
        self.test = mel[:held_out], label[:held_out]
        self.model = SpikingClassifier(args)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def train_step(self, mel, label):
        logits, rate = self.model(mel)
        loss = F.cross_entropy(logits, label) + 0.1 * (rate.mean() - 0.1) ** 2
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self):
        mel, label = self.test
        return (self.model(mel)[0].argmax(1) == label).float().mean().item()

    def fit(self):
        step, begin = 0, time.time()
        for epoch in range(self.args.epochs):
            for mel, label in self.train_loader:
                loss = self.train_step(mel, label)
                step += 1
                if step % self.args.report == 0:
                    print(f"[{epoch:02d}] step {step} loss {loss:.4f} {step / (time.time() - begin):.2f} steps/s",
                          flush=True)
            print(f"[{epoch:02d}] test accuracy {self.accuracy():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(1)
    Trainer(build_parser().parse_args()).fit()
