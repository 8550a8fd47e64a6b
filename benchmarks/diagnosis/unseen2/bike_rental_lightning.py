"""Bike rentals per hour from weather and calendar features, with Lightning."""
import pytorch_lightning as pl
import torch
import torch.nn as nn
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset


def make_rentals(n=60_000, features=384, seed=8):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=g)
    w = torch.randn(features, 16, generator=g) / features ** 0.5
    y = torch.tanh(2 * x @ w).sum(1) + 0.1 * torch.randn(n, generator=g)
    return TensorDataset(x, y)


class RentalModel(pl.LightningModule):
    def __init__(self, features=384, width=1280, lr=3e-4):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=False)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.global_step % 25 == 0:
            print(f"epoch {self.current_epoch} step {self.global_step} loss {outputs['loss'].item():.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    pl.seed_everything(1)
    loader = DataLoader(make_rentals(), batch_size=512, shuffle=True, drop_last=True)
    trainer = pl.Trainer(accelerator="cpu", max_epochs=100, logger=CSVLogger("rental_logs"),
                         log_every_n_steps=50, enable_progress_bar=False)
    trainer.fit(RentalModel(), loader)


if __name__ == "__main__":
    main()
