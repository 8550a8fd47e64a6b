# %% [markdown]
# Multi-label tags from audio descriptors (synthetic), MLP baseline

# %%
import time

import numpy as np
import torch
from scipy.stats import mannwhitneyu
from torch import nn

torch.manual_seed(0)
N, DIM, TAGS = 60_000, 256, 40
BATCH = 512
EPOCHS = 200

# %%
g = torch.Generator().manual_seed(21)
x = torch.randn(N, DIM, generator=g)
hidden = torch.tanh(x @ torch.randn(DIM, 32, generator=g) / 8)
score = hidden @ torch.randn(32, TAGS, generator=g) + torch.randn(N, TAGS, generator=g)
y = (score > score.mean(0) + 0.85 * score.std(0)).float()

# %%
model = nn.Sequential(
    nn.Linear(DIM, 640), nn.ReLU(),
    nn.Linear(640, 512), nn.ReLU(),
    nn.Linear(512, TAGS),
)
loss_fn = nn.BCEWithLogitsLoss()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def mean_auc(logits, target):
    """Area under the ROC curve, averaged over the tags."""
    logits, target = logits.detach().numpy(), target.numpy() > 0.5
    aucs = []
    for k in range(TAGS):
        pos, neg = logits[target[:, k], k], logits[~target[:, k], k]
        if len(pos) and len(neg):
            u = mannwhitneyu(pos, neg, method="asymptotic").statistic
            aucs.append(u / (len(pos) * len(neg)))
    return float(np.mean(aucs))


# %%
step, began = 0, time.time()
running_auc = 0.5
for epoch in range(EPOCHS):
    for idx in torch.randperm(N)[:N // BATCH * BATCH].split(BATCH):
        target = y[idx]
        logits = model(x[idx])
        loss = loss_fn(logits, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        running_auc = 0.95 * running_auc + 0.05 * mean_auc(logits, target)
        if step % 40 == 0:
            print(f"epoch {epoch} step {step}: loss {loss.item():.4f} auc {running_auc:.3f} [{time.time() - began:.0f}s]", flush=True)
