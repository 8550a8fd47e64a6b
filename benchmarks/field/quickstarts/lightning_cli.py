"""LightningCLI, as its first example shows it: the demo model and its data, everything else from the command line."""

from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

cli = LightningCLI(BoringModel, BoringDataModule, seed_everything_default=1)
print("steps", cli.trainer.global_step)
for weights in cli.model.parameters():
    print("loss", float(weights.detach().double().sum()))  # it prints no loss: the trained weights stand for them
