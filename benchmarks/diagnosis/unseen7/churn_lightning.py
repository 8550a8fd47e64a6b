# Playground-style churn competition: mixed tabular features, AUC metric.
# v14: entity embeddings + residual MLP
import logging
import warnings

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.stats import rankdata
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class CFG:
    seed = 42
    rows = 80_000
    n_num = 28
    cat_cards = [7, 12, 31, 52, 190, 8, 4]
    emb_dim = 8
    width = 256
    blocks = 4
    dropout = 0.1
    bs = 256
    val_bs = 1024
    epochs = 250
    lr = 1e-3
    val_fraction = 0.06
    val_every = 5
    print_every = 50


pl.seed_everything(CFG.seed)
torch.set_num_threads(1)


def make_train_csv():
    rng = np.random.default_rng(CFG.seed)
    latent = rng.normal(size=(CFG.rows, 6))
    num = latent @ rng.normal(size=(6, CFG.n_num)) + rng.normal(size=(CFG.rows, CFG.n_num))
    df = pd.DataFrame(num, columns=[f"num_{i}" for i in range(CFG.n_num)])
    logit = 0.8 * np.tanh(latent[:, 0] * latent[:, 1]) + 0.5 * latent[:, 2] - 0.6
    for i, card in enumerate(CFG.cat_cards):
        codes = rng.integers(0, card, CFG.rows)
        logit += rng.normal(scale=0.35, size=card)[codes]
        df[f"cat_{i}"] = codes
    df["churn"] = (rng.random(CFG.rows) < 1 / (1 + np.exp(-logit))).astype("int64")
    return df


def roc_auc(y, score):
    ranks = rankdata(score)
    pos = y.sum()
    return (ranks[y == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))


def to_dataset(df, mean, std):
    num = ((df.filter(like="num_") - mean) / std).to_numpy().astype("float32")
    cat = df.filter(like="cat_").to_numpy().astype("int64")
    y = df["churn"].to_numpy().astype("float32")
    return TensorDataset(torch.from_numpy(num), torch.from_numpy(cat), torch.from_numpy(y))


class ResLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.bn = nn.BatchNorm1d(d)
        self.fc1 = nn.Linear(d, d)
        self.fc2 = nn.Linear(d, d)
        self.drop = nn.Dropout(CFG.dropout)

    def forward(self, x):
        h = F.silu(self.fc1(self.bn(x)))
        return x + self.fc2(self.drop(h))


class ChurnModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, CFG.emb_dim) for c in CFG.cat_cards])
        d_in = CFG.n_num + CFG.emb_dim * len(CFG.cat_cards)
        self.inp = nn.Linear(d_in, CFG.width)
        self.body = nn.Sequential(*[ResLayer(CFG.width) for _ in range(CFG.blocks)])
        self.out = nn.Linear(CFG.width, 1)
        self.best_auc = 0.0
        self._scores, self._labels = [], []

    def forward(self, num, cat):
        parts = [e(cat[:, i]) for i, e in enumerate(self.embs)]
        return self.out(self.body(self.inp(torch.cat([num] + parts, dim=1)))).squeeze(1)

    def training_step(self, batch, batch_idx):
        num, cat, y = batch
        loss = F.binary_cross_entropy_with_logits(self(num, cat), y)
        if self.global_step % CFG.print_every == 0:
            print(f"step {self.global_step} train logloss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        num, cat, y = batch
        self._scores.append(torch.sigmoid(self(num, cat)))
        self._labels.append(y)

    def on_validation_epoch_end(self):
        auc = roc_auc(torch.cat(self._labels).numpy(), torch.cat(self._scores).numpy())
        self._scores.clear()
        self._labels.clear()
        if auc > self.best_auc:
            self.best_auc = auc
            print(f"step {self.global_step} new best auc {auc:.5f}", flush=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=CFG.lr, weight_decay=1e-4)
        return {"optimizer": opt}


def main():
    df = make_train_csv()
    va = df.groupby("churn").sample(frac=CFG.val_fraction, random_state=CFG.seed)
    tr = df.drop(va.index)
    stats = tr.filter(like="num_").mean(), tr.filter(like="num_").std()
    train_dl = DataLoader(to_dataset(tr, *stats), batch_size=CFG.bs, shuffle=True, drop_last=True)
    valid_dl = DataLoader(to_dataset(va, *stats), batch_size=CFG.val_bs)
    print(f"train {len(tr)} valid {len(va)} churn rate {df['churn'].mean():.3f}")

    trainer = pl.Trainer(
        max_epochs=CFG.epochs,
        accelerator="cpu",
        val_check_interval=CFG.val_every,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ChurnModel(), train_dl, valid_dl)


if __name__ == "__main__":
    main()
