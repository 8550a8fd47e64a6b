"""Lightning validates at a fraction of the epoch that was right for a larger data set."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FRACTION = 0.05
HELD_BACK = 3000


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(4, 32, 9), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(256, 6)
        )

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def signals(count):
    return TensorDataset(torch.randn(count, 4, 200), torch.randint(6, (count,)))


if __name__ == "__main__":
    trainer = pl.Trainer(
        max_epochs=100,
        accelerator="cpu",
        val_check_interval=FRACTION,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), DataLoader(signals(6400), batch_size=32), DataLoader(signals(HELD_BACK), batch_size=64))
