import os
import tempfile
import warnings
from argparse import ArgumentParser

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import orthogonal
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", ".*does not have many workers.*")

# Seam inspection on an industrial lockstitch machine.  Each sample is one seam:
# needle-bar force, thread tension and motor current, one frame per stitch.
CLASSES = ["ok", "skipped_stitch", "thread_break", "bobbin_low", "needle_deflection"]
N_STITCH, FRAME = 64, 24


def simulate_seam(rng, label):
    """(stitches, 3 * FRAME) array with a defect placed at a random stitch."""
    ang = np.linspace(0, 2 * np.pi, FRAME, endpoint=False)
    thick = 1 + 0.15 * np.cumsum(rng.normal(0, 0.1, N_STITCH))[:, None]
    force = thick * np.exp(3 * (np.cos(ang) - 1))
    tension = 0.6 * np.exp(4 * (np.cos(ang - 1.2) - 1)) * np.ones((N_STITCH, 1))
    current = 0.4 + 0.2 * np.roll(force, 3, axis=1)
    at = rng.integers(8, N_STITCH - 12)
    if label == 1:
        tension[at] *= 0.2
        tension[at + 1] *= 1.6
    elif label == 2:
        tension[at:] *= np.exp(-0.8 * np.arange(N_STITCH - at))[:, None]
    elif label == 3:
        tension *= np.linspace(1, 0.6, N_STITCH)[:, None]
    elif label == 4:
        force[at:at + 3] = np.roll(force[at:at + 3], 2, axis=1) * 1.3
    x = np.concatenate([force, tension, current], axis=1)
    return (x + rng.normal(0, 0.08, x.shape)).astype(np.float32)


class SeamDataModule(pl.LightningDataModule):
    def __init__(self, root, batch_size=64, n_train=4096, n_val=256):
        super().__init__()
        self.root, self.batch_size = root, batch_size
        self.n_train, self.n_val = n_train, n_val

    def prepare_data(self):
        os.makedirs(self.root, exist_ok=True)
        path = os.path.join(self.root, "seams.npz")
        if os.path.exists(path):
            return
        rng = np.random.default_rng(2024)
        y = rng.integers(0, len(CLASSES), self.n_train + self.n_val)
        x = np.stack([simulate_seam(rng, c) for c in y])
        np.savez(path, x=x, y=y)

    def setup(self, stage=None):
        z = np.load(os.path.join(self.root, "seams.npz"))
        x, y = torch.from_numpy(z["x"]), torch.from_numpy(z["y"])
        x = (x - x.mean((0, 1))) / x.std((0, 1))
        self.train_set = TensorDataset(x[: self.n_train], y[: self.n_train])
        self.val_set = TensorDataset(x[self.n_train:], y[self.n_train:])

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 256)


class ModReLU(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.b = nn.Parameter(torch.empty(n).uniform_(-0.01, 0.01))

    def forward(self, z):
        return torch.sign(z) * F.relu(z.abs() + self.b)


class OrthoRNN(nn.Module):
    """Vanilla RNN whose recurrent kernel stays on O(n); see expRNN (ICML 2019)."""

    def __init__(self, d_in, d_hidden, orthogonal_map="matrix_exp"):
        super().__init__()
        self.d_hidden = d_hidden
        self.inp = nn.Linear(d_in, d_hidden)
        self.rec = orthogonal(nn.Linear(d_hidden, d_hidden, bias=False),
                              orthogonal_map=orthogonal_map)
        self.act = ModReLU(d_hidden)

    def step(self, u, h):
        return self.act(u + self.rec(h))

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.d_hidden)
        states = []
        for u in self.inp(x).unbind(1):
            h = self.step(u, h)
            states.append(h)
        return torch.stack(states, 1)


class SeamClassifier(pl.LightningModule):
    def __init__(self, d_model=192, d_hidden=64, lr=1e-3, lr_orth=1e-4):
        super().__init__()
        self.save_hyperparameters()
        self.frame = nn.Sequential(
            nn.Linear(3 * FRAME, d_model), nn.GELU(),
            nn.Linear(d_model, d_model), nn.GELU(),
            nn.Dropout(0.1),
        )
        self.rnn = OrthoRNN(d_model, d_hidden)
        self.head = nn.Linear(2 * d_hidden, len(CLASSES))

    def forward(self, x):
        z = self.frame(x)
        out = self.rnn(z)
        pooled = torch.cat([out[:, -1], out.amax(1)], dim=-1)
        return self.head(pooled)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(-1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        orth = list(self.rnn.rec.parameters())
        ids = {id(p) for p in orth}
        rest = [p for p in self.parameters() if id(p) not in ids]
        return torch.optim.RMSprop([
            {"params": rest, "lr": self.hparams.lr},
            {"params": orth, "lr": self.hparams.lr_orth},
        ])


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--d_hidden", type=int, default=64)
    args = parser.parse_args()

    pl.seed_everything(1)
    torch.set_num_threads(1)
    root = os.path.join(tempfile.gettempdir(), "stitch_orthornn")
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=args.epochs, gradient_clip_val=1.0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=True, num_sanity_val_steps=0, check_val_every_n_epoch=2,
    )
    trainer.fit(SeamClassifier(d_hidden=args.d_hidden), SeamDataModule(root, args.batch_size))
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
