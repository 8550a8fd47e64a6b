import math
import tempfile

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SHAPES = ("sphere", "cube", "cylinder", "cone", "torus", "helix")
POINTS = 384


def sample(kind: str, n: int, g: torch.Generator) -> torch.Tensor:
    u, v = torch.rand(n, generator=g), torch.rand(n, generator=g)
    a = 2 * math.pi * u
    if kind == "sphere":
        z = 2 * v - 1
        r = (1 - z * z).sqrt()
        return torch.stack([r * a.cos(), r * a.sin(), z], 1)
    if kind == "cube":
        p = torch.rand(n, 3, generator=g) * 2 - 1
        axis = torch.randint(3, (n,), generator=g)
        p[torch.arange(n), axis] = torch.where(v > 0.5, 1.0, -1.0)
        return p
    if kind == "cylinder":
        return torch.stack([a.cos(), a.sin(), 2 * v - 1], 1)
    if kind == "cone":
        return torch.stack([v * a.cos(), v * a.sin(), 1 - 2 * v], 1)
    if kind == "torus":
        b = 2 * math.pi * v
        r = 0.7 + 0.3 * b.cos()
        return torch.stack([r * a.cos(), r * a.sin(), 0.3 * b.sin()], 1)
    return torch.stack([(3 * a).cos() * 0.8, (3 * a).sin() * 0.8, 2 * u - 1], 1)


def random_rotation(g):
    q, r = torch.linalg.qr(torch.randn(3, 3, generator=g))
    return q * r.diagonal().sign()


class ShapeData(pl.LightningDataModule):
    def __init__(self, n_train=2400, n_val=1280, batch_size=32, seed=8):
        super().__init__()
        self.save_hyperparameters()

    def _make(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        clouds, labels = [], []
        for i in range(n):
            k = i % len(SHAPES)
            p = sample(SHAPES[k], POINTS, g) * (0.6 + 0.8 * torch.rand(1, 3, generator=g))
            p = p @ random_rotation(g) + 0.06 * torch.randn(POINTS, 3, generator=g)
            p = p - p.mean(0)
            clouds.append((p / p.norm(dim=1).max()).T)
            labels.append(k)
        return TensorDataset(torch.stack(clouds).contiguous(), torch.tensor(labels))

    def setup(self, stage=None):
        self.train_set = self._make(self.hparams.n_train, self.hparams.seed)
        self.val_set = self._make(self.hparams.n_val, self.hparams.seed + 1)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=128)


class PointNet(pl.LightningModule):
    def __init__(self, lr=1e-3, width=48):
        super().__init__()
        self.save_hyperparameters()
        w = width
        self.local = nn.Sequential(
            nn.Conv1d(3, w, 1), nn.BatchNorm1d(w), nn.ReLU(),
            nn.Conv1d(w, w, 1), nn.BatchNorm1d(w), nn.ReLU())
        self.context = nn.Sequential(
            nn.Conv1d(2 * w, 2 * w, 1), nn.BatchNorm1d(2 * w), nn.ReLU(),
            nn.Conv1d(2 * w, 4 * w, 1), nn.BatchNorm1d(4 * w), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(4 * w, 96), nn.ReLU(), nn.Dropout(0.3), nn.Linear(96, len(SHAPES)))

    def forward(self, x):
        h = self.local(x)
        pooled = h.amax(2, keepdim=True).expand_as(h)
        return self.head(self.context(torch.cat([h, pooled], 1)).amax(2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.05)
        self.log("loss", loss, prog_bar=True)
        if self.global_step % 25 == 0:
            print(f"step {self.global_step} loss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y), batch_size=len(y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean(), batch_size=len(y))

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"step {self.global_step} val_loss {m['val_loss']:.4f} val_acc {m['val_acc']:.3f}", flush=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 30, 0.5)}


if __name__ == "__main__":
    pl.seed_everything(8)
    with tempfile.TemporaryDirectory() as root:
        trainer = pl.Trainer(
            max_epochs=120,
            accelerator="cpu",
            default_root_dir=root,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            val_check_interval=10,
            gradient_clip_val=1.0,
        )
        trainer.fit(PointNet(), datamodule=ShapeData())
