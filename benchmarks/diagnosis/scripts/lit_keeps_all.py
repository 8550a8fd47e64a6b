"""Lightning with a ModelCheckpoint that was set to steps where epochs were meant."""

import tempfile

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EVERY = 5
WIDTH = 1400


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2)
        )

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.rand(6400, 64), torch.randint(2, (6400,))), batch_size=64)
    with tempfile.TemporaryDirectory() as folder:
        keep = ModelCheckpoint(dirpath=folder, every_n_train_steps=EVERY, save_top_k=1)
        pl.Trainer(max_epochs=200, accelerator="cpu", callbacks=[keep], logger=False, enable_progress_bar=False).fit(
            Model(), data
        )
