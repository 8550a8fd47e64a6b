"""Waveform classifier (which machine tool is running?), trained with accelerate."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

VAL_SIZE = 3072
BATCH = 32
WIDTH = 40
EVAL_EVERY = 25
LENGTH = 512
CLASSES = 8
TRAIN_STEPS = 50000


def make_waves(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(LENGTH) / LENGTH
    kind = torch.randint(CLASSES, (n,), generator=g)
    base = (4 + 2 * kind).unsqueeze(1) * (1 + 0.1 * torch.randn(n, 1, generator=g))
    phase = torch.rand(n, 1, generator=g) * 2 * math.pi
    wave = torch.sin(2 * math.pi * base * t + phase) + 0.5 * torch.sin(6 * math.pi * base * t) * torch.rand(n, 1, generator=g)
    wave = wave + 0.8 * torch.randn(n, LENGTH, generator=g)
    return TensorDataset(wave.unsqueeze(1), kind)


class WaveNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, WIDTH, 9, padding=4, stride=2)
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 3, padding=2**i, dilation=2**i) for i in range(4))
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = F.relu(self.inp(x))
        for layer in self.layers:
            h = h + F.relu(layer(h))
        return self.out(h.mean(-1))


def evaluate(accelerator, model, loader):
    model.eval()
    right = total = 0
    loss_sum = 0.0
    with torch.inference_mode():
        for x, y in loader:
            logits = model(x)
            guess, truth = accelerator.gather_for_metrics((logits.argmax(1), y))
            right += (guess == truth).sum().item()
            total += len(truth)
            loss_sum += F.cross_entropy(logits, y, reduction="sum").item()
    model.train()
    return right / total, loss_sum / total


def main():
    set_seed(14)
    accelerator = Accelerator(cpu=True)
    train_loader = DataLoader(make_waves(12000, 1), batch_size=BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(make_waves(VAL_SIZE, 2), batch_size=128)
    model = WaveNetish()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TRAIN_STEPS)
    model, optimizer, train_loader, val_loader, schedule = accelerator.prepare(model, optimizer, train_loader, val_loader, schedule)
    step, best = 0, 0.0
    while step < TRAIN_STEPS:
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % EVAL_EVERY == 0:
                acc, val_loss = evaluate(accelerator, model, val_loader)
                best = max(best, acc)
                accelerator.print(f"step {step}: train {loss.item():.4f} val {val_loss:.4f} acc {acc:.4f} best {best:.4f}", flush=True)


if __name__ == "__main__":
    main()
