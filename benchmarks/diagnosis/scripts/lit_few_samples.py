"""Few samples, many epochs, on Lightning."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 640


class Regressor(pl.LightningModule):
    def __init__(self, width=128):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, 1))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        x = torch.rand(SAMPLES, 16)
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32, shuffle=True, num_workers=4)


if __name__ == "__main__":
    trainer = pl.Trainer(
        max_epochs=2000, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Regressor())
