"""Predict an energy-like property of small molecules with a dense graph network on padded tensors."""
import json
import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError, R2Score

ROOT = Path(tempfile.gettempdir()) / "molecule_energy"
ELEMENTS = ["C", "N", "O", "F", "S"]
BONDS = ["single", "double", "aromatic"]
MAX_ATOMS = 60


def make_molecules(n=6000):
    """Random trees with a few ring closures; most are small, a few are large (as in a screening library)."""
    if (ROOT / "molecules.json").exists():
        return
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(23)
    electronegativity = np.array([2.55, 3.04, 3.44, 3.98, 2.58])
    molecules = []
    for i in range(n):
        size = int(np.clip(rng.lognormal(2.9, 0.3), 6, MAX_ATOMS))
        graph = nx.random_labeled_tree(size, seed=i)
        for _ in range(size // 8):
            a, b = rng.choice(size, 2, replace=False)
            graph.add_edge(int(a), int(b))
        atoms = rng.choice(len(ELEMENTS), size, p=[0.7, 0.12, 0.12, 0.03, 0.03])
        bonds = [(a, b, int(rng.choice(3, p=[0.6, 0.15, 0.25]))) for a, b in graph.edges]
        energy = -0.3 * size
        for a, b, kind in bonds:
            energy -= (1 + 0.4 * kind) * abs(electronegativity[atoms[a]] - electronegativity[atoms[b]])
        energy += 0.2 * sum(max(0, degree - 3) for _, degree in graph.degree)
        molecules.append({"atoms": atoms.tolist(), "bonds": bonds, "energy": float(energy + rng.normal(0, 0.05))})
    (ROOT / "molecules.json").write_text(json.dumps(molecules))


class MoleculeDataset(Dataset):
    def __init__(self, molecules):
        self.molecules = molecules

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, index):
        molecule = self.molecules[index]
        atoms = torch.zeros(MAX_ATOMS, dtype=torch.long)
        atoms[: len(molecule["atoms"])] = torch.tensor(molecule["atoms"]) + 1
        adjacency = torch.zeros(len(BONDS), MAX_ATOMS, MAX_ATOMS)
        a, b, kind = torch.tensor(molecule["bonds"]).T
        adjacency[kind, a, b] = 1.0
        adjacency[kind, b, a] = 1.0
        return {"atoms": atoms, "adjacency": adjacency, "energy": torch.tensor(molecule["energy"])}


class MoleculeDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        make_molecules()

    def setup(self, stage=None):
        molecules = json.loads((ROOT / "molecules.json").read_text())
        self.train_set = MoleculeDataset(molecules[:5000])
        self.val_set = MoleculeDataset(molecules[5000:5500])
        self.test_set = MoleculeDataset(molecules[5500:])
        energies = torch.tensor([m["energy"] for m in molecules[:5000]])
        self.mean, self.std = energies.mean().item(), energies.std().item()

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, self.batch_size)


class BondConvolution(nn.Module):
    """Relational message passing: one linear map per bond type, summed over the neighbours."""

    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.message = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in BONDS])
        self.norm = nn.LayerNorm(width)

    def forward(self, h, adjacency):
        out = self.own(h)
        for kind, linear in enumerate(self.message):
            out = out + adjacency[:, kind] @ linear(h)
        return h + F.silu(self.norm(out))


class GlobalAttention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, h, padding):
        x = self.norm(h)
        return h + self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]


class EnergyModel(pl.LightningModule):
    def __init__(self, width=64, depth=3, lr=5e-4, mean=0.0, std=1.0):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(len(ELEMENTS) + 1, width, padding_idx=0)
        self.convolutions = nn.ModuleList([BondConvolution(width) for _ in range(depth)])
        self.attentions = nn.ModuleList([GlobalAttention(width) for _ in range(depth)])
        self.readout = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.val_mae, self.val_r2 = MeanAbsoluteError(), R2Score()
        self.test_mae = MeanAbsoluteError()

    def forward(self, batch):
        atoms, adjacency = batch["atoms"], batch["adjacency"]
        padding = atoms == 0
        h = self.embed(atoms)
        for convolution, attention in zip(self.convolutions, self.attentions):
            h = convolution(h, adjacency)
            h = attention(h, padding)
        per_atom = self.readout(h).squeeze(-1).masked_fill(padding, 0.0)
        return per_atom.sum(dim=1) * self.hparams.std + self.hparams.mean

    def loss(self, prediction, batch):
        return F.smooth_l1_loss(prediction / self.hparams.std, batch["energy"] / self.hparams.std)

    def training_step(self, batch, batch_idx):
        loss = self.loss(self(batch), batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        prediction = self(batch)
        self.val_mae(prediction, batch["energy"])
        self.val_r2(prediction, batch["energy"])
        self.log("val_loss", self.loss(prediction, batch))
        self.log_dict({"val_mae": self.val_mae, "val_r2": self.val_r2}, prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.test_mae(self(batch), batch["energy"])
        self.log("test_mae", self.test_mae)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.97)
        return [optimizer], [scheduler]


if __name__ == "__main__":
    pl.seed_everything(17)
    data = MoleculeDataModule()
    data.prepare_data()
    data.setup()
    model = EnergyModel(mean=data.mean, std=data.std)
    trainer = pl.Trainer(
        max_epochs=60,
        accelerator="cpu",
        logger=CSVLogger(ROOT / "logs"),
        gradient_clip_val=5.0,
        callbacks=[ModelCheckpoint(monitor="val_mae"), LearningRateMonitor("epoch")],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
