"""LightningCLI, as its first example shows it: the demo model and its data, everything else from the command line."""

from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringDataModule, DemoModel

cli = LightningCLI(DemoModel, BoringDataModule, seed_everything_default=1)
print("steps", cli.trainer.global_step)
