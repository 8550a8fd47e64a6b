"""Soil properties from infrared spectra: 64 targets at once, each followed on its own curve in TensorBoard."""
import sys
import tempfile

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N_TARGETS = 64
BATCH = 128
HIDDEN = 448
BANDS = 220


def spectra(n, seed):
    g = torch.Generator().manual_seed(seed)
    fixed = torch.Generator().manual_seed(1000)
    mixing = torch.randn(N_TARGETS, BANDS, generator=fixed)
    smooth = nn.functional.avg_pool1d(mixing.unsqueeze(1), 15, 1, 7).squeeze(1)
    amounts = torch.rand(n, N_TARGETS, generator=g)
    x = torch.exp(-(amounts @ smooth).abs()) + 0.01 * torch.randn(n, BANDS, generator=g)
    return TensorDataset(x, amounts)


class SoilNet(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.BatchNorm1d(BANDS),
            nn.Linear(BANDS, HIDDEN), nn.ELU(),
            nn.Linear(HIDDEN, HIDDEN), nn.ELU(),
            nn.Linear(HIDDEN, N_TARGETS), nn.Sigmoid(),
        )
        self.names = [f"property_{i:02d}" for i in range(N_TARGETS)]

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        loss = nn.functional.mse_loss(out, y)
        error = (out.detach() - y).abs().mean(0)
        for name, value in zip(self.names, error):
            self.log(f"train/mae_{name}", value, on_step=True, on_epoch=False, prog_bar=True)
        self.log("train/loss", loss.detach(), on_step=True, on_epoch=False, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val/loss", nn.functional.mse_loss(self(x), y), prog_bar=False)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    pl.seed_everything(9)
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    train = DataLoader(spectra(40000, 1), batch_size=None, sampler=torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(range(40000)), BATCH, drop_last=True))
    val = DataLoader(spectra(1000, 2), batch_size=500)
    trainer = pl.Trainer(
        max_epochs=500,
        accelerator="cpu",
        logger=TensorBoardLogger(where, name="soil"),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(SoilNet(), train, val)
