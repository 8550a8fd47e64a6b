import collections

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from tqdm import tqdm

BATCH = 256
KEEP = 80          # batches in the running scores
WIDTH = 192
EPOCHS = 1000


def get_data():
    x, y = make_classification(
        n_samples=40000, n_features=60, n_informative=25, n_redundant=10, weights=[0.8], class_sep=0.7, random_state=4
    )
    x = (x - x.mean(0)) / x.std(0)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class RunningScores:
    """AUC, average precision and F1 of the recent predictions."""

    def __init__(self, keep):
        self.truth = collections.deque(maxlen=keep)
        self.score = collections.deque(maxlen=keep)

    def add(self, truth, score):
        self.truth.append(truth.numpy())
        self.score.append(score.detach().numpy())

    def summary(self):
        t, s = np.concatenate(self.truth), np.concatenate(self.score)
        return dict(auc=roc_auc_score(t, s), ap=average_precision_score(t, s), f1=f1_score(t, s > 0.5))


def main():
    torch.manual_seed(4)
    x, y = get_data()
    net = nn.Sequential(
        nn.Linear(60, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(WIDTH, 1),
    )
    optim = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-5)
    scores = RunningScores(KEEP)
    n_batches = len(x) // BATCH
    shown = {}
    for epoch in range(EPOCHS):
        perm = torch.randperm(len(x))
        bar = tqdm(range(n_batches), desc=f"epoch {epoch}", mininterval=2.0)
        for b in bar:
            idx = perm[b * BATCH : (b + 1) * BATCH]
            logit = net(x[idx]).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logit, y[idx])
            optim.zero_grad()
            loss.backward()
            optim.step()
            scores.add(y[idx], torch.sigmoid(logit))
            shown = scores.summary()
            if b % 50 == 0:
                bar.set_postfix({k: f"{v:.3f}" for k, v in shown.items()}, refresh=False)
        print("epoch", epoch, {k: round(float(v), 4) for k, v in shown.items()})


if __name__ == "__main__":
    main()
