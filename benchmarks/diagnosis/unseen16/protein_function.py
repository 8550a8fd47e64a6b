"""Predict Gene Ontology terms (multi-label) from protein sequences with a dilated 1-D CNN."""
import json
import tempfile
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision, MultilabelF1Score

ROOT = Path(tempfile.gettempdir()) / "protein_function"
AMINO = "ACDEFGHIKLMNPQRSTVWY"
N_TERMS = 300
MAX_LEN = 256


def make_proteins(n=6000):
    """Random sequences; every term has a short motif that is inserted where the term applies."""
    if (ROOT / "proteins.jsonl").exists():
        return
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    letters = np.array(list(AMINO))
    motifs = [rng.choice(letters, 6) for _ in range(N_TERMS)]
    popularity = rng.uniform(0.5, 1.5, N_TERMS)
    popularity /= popularity.sum()
    with open(ROOT / "proteins.jsonl", "w") as f:
        for i in range(n):
            sequence = rng.choice(letters, int(rng.integers(80, MAX_LEN)))
            terms = rng.choice(N_TERMS, int(rng.integers(4, 16)), replace=False, p=popularity)
            for term in terms:
                start = rng.integers(0, len(sequence) - 6)
                sequence[start : start + 6] = motifs[term]
            record = {"id": f"P{i:05d}", "sequence": "".join(sequence), "terms": sorted(int(t) for t in terms)}
            f.write(json.dumps(record) + "\n")


class ProteinDataset(Dataset):
    def __init__(self, records):
        self.sequences = []
        self.targets = []
        index = {letter: i + 1 for i, letter in enumerate(AMINO)}
        for record in records:
            self.sequences.append(torch.tensor([index[letter] for letter in record["sequence"]]))
            target = torch.zeros(N_TERMS)
            target[record["terms"]] = 1.0
            self.targets.append(target)

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, i):
        return self.sequences[i], self.targets[i]


def collate(items):
    sequences, targets = zip(*items)
    return pad_sequence(sequences, batch_first=True), torch.stack(targets)


class ProteinDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        make_proteins()

    def setup(self, stage=None):
        with open(ROOT / "proteins.jsonl") as f:
            records = [json.loads(line) for line in f]
        self.train_set = ProteinDataset(records[:5000])
        self.val_set = ProteinDataset(records[5000:5500])
        self.test_set = ProteinDataset(records[5500:])

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, collate_fn=collate)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size, collate_fn=collate)

    def test_dataloader(self):
        return DataLoader(self.test_set, self.batch_size, collate_fn=collate)


class ResidualBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)

    def forward(self, x):
        return x + self.conv(F.relu(self.norm(x)))


class ProteinTagger(pl.LightningModule):
    def __init__(self, width=48, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(len(AMINO) + 1, width, padding_idx=0)
        self.blocks = nn.Sequential(*[ResidualBlock(width, d) for d in (1, 3)])
        self.head = nn.Linear(width, N_TERMS)
        metrics = MetricCollection(
            {
                "auroc": MultilabelAUROC(num_labels=N_TERMS),
                "ap": MultilabelAveragePrecision(num_labels=N_TERMS),
                "f1": MultilabelF1Score(num_labels=N_TERMS),
            }
        )
        self.train_metrics = metrics.clone(prefix="train/")
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")

    def forward(self, tokens):
        hidden = self.blocks(self.embed(tokens).transpose(1, 2))
        hidden = hidden.masked_fill((tokens == 0).unsqueeze(1), float("-inf"))
        return self.head(hidden.amax(dim=2))

    def training_step(self, batch, batch_idx):
        tokens, target = batch
        logits = self(tokens)
        loss = F.binary_cross_entropy_with_logits(logits, target)
        self.train_metrics(logits, target.long())
        self.log("train/loss", loss, prog_bar=True)
        self.log_dict(self.train_metrics, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        tokens, target = batch
        logits = self(tokens)
        self.val_metrics.update(logits, target.long())
        self.log("val/loss", F.binary_cross_entropy_with_logits(logits, target), prog_bar=True)

    def on_validation_epoch_end(self):
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()

    def test_step(self, batch, batch_idx):
        tokens, target = batch
        self.test_metrics.update(self(tokens), target.long())

    def on_test_epoch_end(self):
        self.log_dict(self.test_metrics.compute())
        self.test_metrics.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
        return [optimizer], [scheduler]


if __name__ == "__main__":
    pl.seed_everything(0)
    data = ProteinDataModule()
    model = ProteinTagger()
    checkpoint = ModelCheckpoint(monitor="val/ap", mode="max", auto_insert_metric_name=False, filename="best")
    trainer = pl.Trainer(
        max_epochs=60,
        accelerator="cpu",
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[checkpoint, LearningRateMonitor("epoch")],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
