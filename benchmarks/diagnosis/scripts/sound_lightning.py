"""A transformer encoder on Lightning, validated once in a while."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 128


class Encoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def part(count, workers):
    data = TensorDataset(torch.randn(count, 32, WIDTH), torch.randint(5, (count,)))
    return DataLoader(data, batch_size=16, num_workers=workers, persistent_workers=workers > 0)


if __name__ == "__main__":
    trainer = pl.Trainer(
        max_epochs=50, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Encoder(), part(3200, 1), part(64, 0))
