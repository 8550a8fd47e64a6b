"""
Whale call tagging: which of 24 call types are audible in a 2 s hydrophone clip (multi-label).
log-spectrogram -> small CNN, BCE, mAP. Exported from notebook.
"""
import os
import random
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from scipy.io import wavfile
from scipy.signal import stft
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MultilabelAveragePrecision, MultilabelF1Score
from tqdm import tqdm


class CFG:
    root = os.path.join(tempfile.gettempdir(), "whale_calls_aa")
    sr = 2000
    duration = 2.0
    n_calls = 24
    n_clips = 9000
    n_fft = 256
    hop = 64
    epochs = 12
    bs = 32
    lr = 2e-3
    wd = 1e-2
    folds = 5
    fold = 0
    seed = 1987


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


# %% [data]
def synth_clip(rng, calls):
    t = np.arange(int(CFG.sr * CFG.duration)) / CFG.sr
    x = rng.normal(0, 0.3, t.size)
    x = np.convolve(x, np.ones(4) / 4, mode="same")
    for c in calls:
        start, length = rng.uniform(0, 1.0), rng.uniform(0.5, 1.0)
        f0 = 50 + 35 * (c % 12)
        slope = 120 if c >= 12 else -30
        tt = t - start
        env = np.where((tt > 0) & (tt < length), np.sin(np.pi * np.clip(tt / length, 0, 1)), 0)
        x += rng.uniform(0.2, 0.6) * env * np.sin(2 * np.pi * (f0 * tt + 0.5 * slope * tt**2))
    return x


def build_dataset():
    csv = os.path.join(CFG.root, "train.csv")
    if not os.path.exists(csv):
        os.makedirs(os.path.join(CFG.root, "train"), exist_ok=True)
        rng = np.random.default_rng(CFG.seed)
        rows = []
        for i in range(CFG.n_clips):
            calls = sorted(rng.choice(CFG.n_calls, size=rng.integers(0, 4), replace=False).tolist())
            x = synth_clip(rng, calls)
            x = (x / np.abs(x).max() * 30000).astype(np.int16)
            wavfile.write(os.path.join(CFG.root, "train", f"clip_{i:05d}.wav"), CFG.sr, x)
            rows.append((f"clip_{i:05d}.wav", " ".join(map(str, calls)), i % CFG.folds))
        pd.DataFrame(rows, columns=["clip", "calls", "fold"]).to_csv(csv, index=False)
    return pd.read_csv(csv, keep_default_na=False)


class WhaleDataset(Dataset):
    def __init__(self, df, train):
        self.clips = df["clip"].values
        self.calls = df["calls"].values
        self.train = train

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        sr, x = wavfile.read(os.path.join(CFG.root, "train", self.clips[i]))
        x = x.astype(np.float32) / 32768
        if self.train:
            x = np.roll(x, random.randint(-200, 200))
            x = x * random.uniform(0.7, 1.3)
        _, _, spec = stft(x, fs=sr, nperseg=CFG.n_fft, noverlap=CFG.n_fft - CFG.hop)
        spec = np.log(np.abs(spec[:96]) + 1e-5).astype(np.float32)
        spec = (spec - spec.mean()) / (spec.std() + 1e-6)
        if self.train and random.random() < 0.5:
            f = random.randint(0, 85)
            spec[f:f + 8] = 0
        target = np.zeros(CFG.n_calls, dtype=np.float32)
        for c in str(self.calls[i]).split():
            target[int(c)] = 1
        return torch.from_numpy(spec)[None], torch.from_numpy(target)


# %% [model]
class ConvBlock(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


class WhaleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(ConvBlock(1, 16), ConvBlock(16, 32), ConvBlock(32, 64), ConvBlock(64, 128))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(128 * 6, 128), nn.ReLU(), nn.Linear(128, CFG.n_calls))

    def forward(self, x):
        x = self.blocks(x)            # b, 128, freq, time
        x = x.amax(-1).flatten(1)     # where in the clip does not matter
        return self.head(x)


# %% [train]
class Scores:
    """mAP and F1 of everything seen in the epoch so far"""

    def __init__(self):
        self.ap = MultilabelAveragePrecision(CFG.n_calls)
        self.f1 = MultilabelF1Score(CFG.n_calls)

    def reset(self):
        self.ap.reset()
        self.f1.reset()

    def update(self, logits, y):
        p = logits.detach().sigmoid()
        self.ap.update(p, y.long())
        self.f1.update(p, y.long())

    def compute(self):
        return {"mAP": self.ap.compute().item(), "f1": self.f1.compute().item()}


def main():
    seed_everything(CFG.seed)
    df = build_dataset()
    trn, val = df[df.fold != CFG.fold], df[df.fold == CFG.fold]
    train_dl = DataLoader(WhaleDataset(trn, True), CFG.bs, shuffle=True, drop_last=True, num_workers=1)
    valid_dl = DataLoader(WhaleDataset(val, False), CFG.bs * 2, num_workers=1)

    model = WhaleNet()
    opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.wd)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, CFG.epochs * len(train_dl))
    criterion = nn.BCEWithLogitsLoss()
    scores = Scores()
    best = 0.0

    for epoch in range(CFG.epochs):
        model.train()
        scores.reset()
        running = 0.0
        bar = tqdm(train_dl, desc=f"epoch {epoch}", mininterval=2)
        for step, (x, y) in enumerate(bar):
            opt.zero_grad()
            logits = model(x)
            loss = criterion(logits, y)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
            scores.update(logits, y)
            bar.set_postfix(loss=f"{running / (step + 1):.4f}",
                            **{k: f"{v:.3f}" for k, v in scores.compute().items()})

        model.eval()
        scores.reset()
        val_loss = 0.0
        with torch.no_grad():
            for x, y in tqdm(valid_dl, desc="valid", mininterval=2):
                logits = model(x)
                val_loss += criterion(logits, y).item()
                scores.update(logits, y)
        result = scores.compute()
        print(f"epoch {epoch}: train {running / len(train_dl):.4f} valid {val_loss / len(valid_dl):.4f}", result)
        if result["mAP"] > best:
            best = result["mAP"]
            torch.save(model.state_dict(), os.path.join(CFG.root, f"whalenet_f{CFG.fold}_best.pt"))
    print("best mAP", best)


if __name__ == "__main__":
    main()
