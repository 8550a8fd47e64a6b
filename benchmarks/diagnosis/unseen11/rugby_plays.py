# %% [markdown]
# # Rugby phases: will the attack gain the line?
# Tracking data of ~12k phases, 12 frames x 10 players kept per phase.
# Baseline notebook, exported to a script. CV 0.41 logloss, fold 0 only here.

# %%
import os
import random
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from scipy.stats import rankdata
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


class CFG:
    seed = 42
    n_games = 60
    phases_per_game = 170
    frames = 12
    players = 10
    batch_size = 32
    epochs = 10
    lr = 1e-3
    dim = 64
    threads = 1
    path = os.path.join(tempfile.gettempdir(), "rugby_plays")


FEATURES = ["x", "y", "s", "dir_sin", "dir_cos"]


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


seed_everything(CFG.seed)
torch.set_num_threads(CFG.threads)
os.makedirs(CFG.path, exist_ok=True)


# %% [markdown]
# ## Data

# %%
def simulate(cfg):
    """Attackers run at a defensive line; gaps and speed decide about the gain."""
    rng = np.random.default_rng(cfg.seed)
    n = cfg.n_games * cfg.phases_per_game
    half = cfg.players // 2
    t = np.arange(cfg.frames, dtype=np.float32) / 5
    y0 = np.sort(rng.uniform(0, 70, (n, cfg.players)), axis=1)
    speed = rng.uniform(2, 8, (n, cfg.players))
    att = np.arange(cfg.players) % 2 == 0
    ang = rng.normal(0, 0.3, (n, cfg.players)) + np.where(att, 0, np.pi)
    x = np.where(att, -5, 5)[None, None] + t[None, :, None] * (speed * np.cos(ang))[:, None]
    y = y0[:, None] + t[None, :, None] * (speed * np.sin(ang))[:, None]
    gap = np.abs(y0[:, ::2][:, :half] - y0[:, 1::2]).max(axis=1)
    logit = 0.25 * (gap - gap.mean()) + 0.8 * (speed[:, att].mean(1) - speed[:, ~att].mean(1))
    gain = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.int64)

    shape = (n, cfg.frames, cfg.players)
    game, play = np.divmod(np.arange(n), cfg.phases_per_game)
    cols = {
        "gameId": np.broadcast_to(2023000 + game[:, None, None], shape),
        "playId": np.broadcast_to(play[:, None, None], shape),
        "frameId": np.broadcast_to(np.arange(cfg.frames)[None, :, None], shape),
        "nflId": np.broadcast_to(np.arange(cfg.players)[None, None], shape),
        "x": x + rng.normal(0, 0.1, shape),
        "y": y + rng.normal(0, 0.1, shape),
        "s": np.broadcast_to(speed[:, None], shape),
        "dir_sin": np.broadcast_to(np.sin(ang)[:, None], shape),
        "dir_cos": np.broadcast_to(np.cos(ang)[:, None], shape),
    }
    df = pd.DataFrame({k: v.ravel() for k, v in cols.items()})
    for c in FEATURES:
        df[c] = df[c].astype("float32")
    # the provider delivers one file per camera, each with the players it saw
    df["camera"] = df["nflId"] % 3
    df = df.sort_values(["camera", "frameId"], kind="stable").drop(columns="camera")
    plays = pd.DataFrame({"gameId": 2023000 + game, "playId": play, "gain": gain})
    return df.rename(columns={"nflId": "playerId"}).reset_index(drop=True), plays


if not os.path.exists(f"{CFG.path}/tracking.parquet"):
    _df, _plays = simulate(CFG)
    _plays.to_csv(f"{CFG.path}/plays.csv", index=False)
    _df.to_parquet(f"{CFG.path}/tracking.parquet")
    del _df, _plays

tracking = pd.read_parquet(f"{CFG.path}/tracking.parquet")
plays = pd.read_csv(f"{CFG.path}/plays.csv")
tracking["x"] /= 50
tracking["y"] = tracking["y"] / 35 - 1
tracking["s"] /= 10
print(tracking.shape, plays.shape, "positive rate", plays["gain"].mean().round(3))

# %%
tracking = tracking.set_index(["gameId", "playId"])
games = plays["gameId"].unique()
valid_games = set(games[::10])
train_plays = plays[~plays["gameId"].isin(valid_games)].reset_index(drop=True)
valid_plays = plays[plays["gameId"].isin(valid_games)].reset_index(drop=True).head(256)


# %%
class PlayDataset(Dataset):
    def __init__(self, plays, tracking, augment=False):
        self.keys = list(zip(plays["gameId"], plays["playId"]))
        self.labels = plays["gain"].values.astype(np.float32)
        self.tracking = tracking
        self.augment = augment

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, idx):
        play = self.tracking.loc[self.keys[idx]]
        frame = play["frameId"].to_numpy()
        player = play["playerId"].to_numpy()
        x = np.zeros((CFG.frames, CFG.players, len(FEATURES)), dtype=np.float32)
        x[frame, player] = play[FEATURES].to_numpy()
        if self.augment and random.random() < 0.5:  # mirror the field
            x[..., 1] *= -1
            x[..., 3] *= -1
        return x, self.labels[idx]


# %% [markdown]
# ## Model

# %%
class PlayNet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.temporal = nn.Sequential(
            nn.Linear(CFG.frames * len(FEATURES), dim * 2), nn.ReLU(), nn.Linear(dim * 2, dim),
        )
        self.side = nn.Parameter(torch.randn(2, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1))

    def forward(self, x):
        b = x.shape[0]
        h = self.temporal(x.permute(0, 2, 1, 3).reshape(b, CFG.players, -1))
        h = h + self.side.repeat(CFG.players // 2, 1)
        return self.head(self.encoder(h).mean(dim=1)).squeeze(1)


def log_loss(y, p):
    return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def roc_auc_score(y, p):
    pos = y.sum()
    return float((rankdata(p)[y > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos)))


def valid_fn(model, loader):
    model.eval()
    preds, ys = [], []
    with torch.no_grad():
        for x, y in loader:
            preds.append(model(x).sigmoid().numpy())
            ys.append(y.numpy())
    model.train()
    p, y = np.concatenate(preds), np.concatenate(ys)
    return log_loss(y, p.clip(1e-6, 1 - 1e-6)), roc_auc_score(y, p)


# %% [markdown]
# ## Train fold 0

# %%
train_loader = DataLoader(PlayDataset(train_plays, tracking, True), batch_size=CFG.batch_size,
                          shuffle=True, drop_last=True)
valid_loader = DataLoader(PlayDataset(valid_plays, tracking), batch_size=64)
model = PlayNet(CFG.dim)
optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, CFG.lr, total_steps=CFG.epochs * len(train_loader))
criterion = nn.BCEWithLogitsLoss()

for epoch in range(CFG.epochs):
    start, losses = time.time(), []
    for step, (x, y) in enumerate(train_loader):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"  epoch {epoch} step {step}/{len(train_loader)} loss {np.mean(losses[-100:]):.4f}", flush=True)
    ll, auc = valid_fn(model, valid_loader)
    print(f"Epoch {epoch}: train {np.mean(losses):.4f} valid logloss {ll:.4f} auc {auc:.4f} ({time.time() - start:.0f}s)")
torch.save(model.state_dict(), f"{CFG.path}/fold0.pth")
