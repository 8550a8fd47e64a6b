# Arrhythmia detector on single-lead ECG windows, 1D CNN.
import os
import tempfile
import time
import numpy as np
import torch
import torch.nn as nn

path = os.environ.get("ECG_FILE", os.path.join(tempfile.gettempdir(), "ecg_windows.npy"))
n_windows, width = 8000, 250
rng = np.random.default_rng(1)
labels = (rng.random(n_windows) < 0.3).astype(np.float32)
if not os.path.exists(path):
    t = np.linspace(0, 2, width)
    rate = rng.uniform(1.0, 1.8, (n_windows, 1))
    phase = (t[None] * rate + rng.random((n_windows, 1))) % 1
    irregular = labels[:, None] * 0.12 * np.sin(2 * np.pi * 0.7 * t[None] + rng.uniform(0, 6, (n_windows, 1)))
    beat = np.exp(-((phase + irregular - 0.5) / 0.03) ** 2) + 0.2 * np.exp(-((phase - 0.7) / 0.06) ** 2)
    np.save(path, (beat + 0.1 * rng.normal(size=beat.shape)).astype(np.float32))
signals = torch.from_numpy(np.load(path)).unsqueeze(1)
targets = torch.from_numpy(labels)


def roc_auc(score, y):
    order = np.argsort(score)
    rank = np.empty(len(score))
    rank[order] = np.arange(1, len(score) + 1)
    pos = y.sum()
    if pos == 0 or pos == len(y):
        return float("nan")
    return (rank[y == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))


def best_f1(score, y):
    best = 0.0
    for th in np.linspace(0.002, 0.998, 499):
        pred = score >= th
        tp = np.sum(pred & (y == 1))
        fp = np.sum(pred & (y == 0))
        fn = np.sum(~pred & (y == 1))
        best = max(best, 2 * tp / max(2 * tp + fp + fn, 1))
    return best


net = nn.Sequential(
    nn.Conv1d(1, 16, 7, stride=2, padding=3), nn.BatchNorm1d(16), nn.ReLU(),
    nn.Conv1d(16, 32, 5, stride=2, padding=2), nn.BatchNorm1d(32), nn.ReLU(),
    nn.Conv1d(32, 32, 5, stride=2, padding=2), nn.ReLU(),
    nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 1),
)
optim = torch.optim.Adam(net.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=20000)
batch = 64
step = 0
began = time.time()
scores, truth = [], []

for epoch in range(400):
    perm = torch.randperm(n_windows)
    for k in range(0, n_windows, batch):
        idx = perm[k:k + batch]
        x, y = signals[idx], targets[idx]
        out = net(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(out, y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        sched.step()
        step += 1

        scores.extend(torch.sigmoid(out.detach()).tolist())
        truth.extend(y.tolist())
        auc = roc_auc(np.array(scores), np.array(truth))
        f1 = best_f1(np.array(scores), np.array(truth))
        if step % 20 == 0:
            print("epoch %d step %d loss %.4f auc %.4f f1 %.4f | %.0f windows/s"
                  % (epoch, step, loss.item(), auc, f1, step * batch / (time.time() - began)))
    scores, truth = [], []
