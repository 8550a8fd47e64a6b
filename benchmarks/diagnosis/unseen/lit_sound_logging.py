import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset, random_split
import tempfile

WIDTH = 48
BATCH_SIZE = 24
N_SIGNALS = 12000
SEED = 2024


class HeartBeats(pl.LightningDataModule):
    """Synthetic ECG-like traces: five rhythms."""

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(SEED)
        t = torch.linspace(0, 4, 400)
        rhythm = torch.randint(5, (N_SIGNALS,), generator=g)
        rate = (0.9 + 0.25 * rhythm).unsqueeze(1) * (1 + 0.05 * torch.randn(N_SIGNALS, 1, generator=g))
        beat = torch.sin(3.1416 * rate * t + torch.rand(N_SIGNALS, 1, generator=g) * 3).abs().pow(30)
        trace = beat + 0.2 * torch.randn(N_SIGNALS, 400, generator=g)
        full = TensorDataset(trace.unsqueeze(1), rhythm)
        self.train_set, self.val_set = random_split(full, [N_SIGNALS - 480, 480], generator=g)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=96)


class RhythmModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layers, c = [], 1
        for i in range(4):
            out = WIDTH * (1 if i < 2 else 2)
            layers += [nn.Conv1d(c, out, 7, padding=3), nn.BatchNorm1d(out), nn.ReLU()]
            if i % 2:
                layers.append(nn.MaxPool1d(2))
            c = out
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.classify = nn.Linear(c, 5)

    def forward(self, x):
        return self.classify(self.features(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        if self.global_step % 50 == 0:
            self.log("loss", loss.detach(), prog_bar=True)
            self.log("accuracy", (logits.argmax(1) == y).float().mean())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_accuracy", (self(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.StepLR(opt, 10, 0.5)
        return [opt], [sched]


def main():
    pl.seed_everything(SEED)
    trainer = pl.Trainer(
        max_epochs=200,
        accelerator="cpu",
        devices=1,
        logger=CSVLogger(tempfile.mkdtemp(), flush_logs_every_n_steps=500),
        log_every_n_steps=1,
        check_val_every_n_epoch=1,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(RhythmModel(), datamodule=HeartBeats())


if __name__ == "__main__":
    main()
