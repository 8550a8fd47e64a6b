"""A Lightning fit of two epochs with validation, a checkpoint and a CSV log."""

import sys
import warnings

import torch
from learning import Net, Points, loss_of, seed
from telling import show
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
import pytorch_lightning as pl  # noqa: E402


class Task(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        loss = loss_of(self.net(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        show(loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", loss_of(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


seed()
trainer = pl.Trainer(
    accelerator="cpu",
    max_epochs=2,
    default_root_dir=sys.argv[1],
    logger=pl.loggers.CSVLogger(sys.argv[1]),
    log_every_n_steps=2,
    num_sanity_val_steps=0,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Task(), DataLoader(Points(24), batch_size=4, shuffle=True), DataLoader(Points(8), batch_size=4))
