"""Skeleton gesture recognition with PyTorch Lightning.

Each clip is a sequence of 3D joint positions.  Frames are embedded by a small
network, a GRU summarises the clip and a linear layer predicts the gesture.
"""
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

FRAMES = 96
JOINTS = 21
GESTURES = 10


def make_clips(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, GESTURES, (n,), generator=g)
    t = torch.linspace(0, 1, FRAMES)
    proto = torch.randn(GESTURES, JOINTS * 3, 2, generator=torch.Generator().manual_seed(99))
    phase = torch.rand(n, 1, 1, generator=g) * 0.5
    angle = 6.28 * (t[None, :, None] + phase) * (1 + y.view(-1, 1, 1) / 4)
    x = torch.sin(angle) * proto[y, :, 0][:, None] + torch.cos(angle) * proto[y, :, 1][:, None]
    return x + 1.5 * torch.randn(x.shape, generator=g), y


class FrameEncoder(nn.Module):
    """Embeds the pose of one frame."""

    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(JOINTS * 3, dim),
            nn.LayerNorm(dim),
            nn.GELU(),
            nn.Linear(dim, dim),
            nn.LayerNorm(dim),
            nn.GELU(),
            nn.Linear(dim, dim),
        )

    def forward(self, pose):
        return self.net(pose)


class GestureModel(pl.LightningModule):
    def __init__(self, dim=64, lr=1e-3, weight_decay=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = FrameEncoder(dim)
        self.mixer = nn.Conv1d(dim, dim, 5, stride=2, padding=2)
        self.head = nn.Linear(dim, GESTURES)

    def forward(self, clip):
        # clip: (batch, frames, joints * 3)
        frames = []
        for t in range(clip.size(1)):
            frames.append(self.encoder(clip[:, t]))
        h = torch.stack(frames, dim=1)
        h = F.gelu(self.mixer(h.transpose(1, 2)))
        return self.head(h.mean(-1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        if batch_idx % 20 == 0:
            acc = (logits.argmax(1) == y).float().mean()
            self.log("train_loss", loss)
            self.log("train_acc", acc)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        opt = torch.optim.AdamW(
            self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay
        )
        sched = torch.optim.lr_scheduler.StepLR(opt, step_size=20, gamma=0.7)
        return {"optimizer": opt, "lr_scheduler": sched}


class PrintMetrics(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        m = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch} step {trainer.global_step} {m}", flush=True)


def main():
    pl.seed_everything(5)
    train = TensorDataset(*make_clips(3200, 0))
    val = TensorDataset(*make_clips(320, 1))
    train_loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(val, batch_size=64)

    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=200,
        check_val_every_n_epoch=5,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        callbacks=[PrintMetrics()],
    )
    trainer.fit(GestureModel(), train_loader, val_loader)


if __name__ == "__main__":
    main()
