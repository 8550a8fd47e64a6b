"""A small training by somebody else's loop: python by_trainer.py KIND --epochs N."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from several_epochs import BATCH, SAMPLES, WIDTH, Readings
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("lightning", "lightning_validated", "lightning_saved", "huggingface", "huggingface_evaluated", "accelerate")


def network() -> nn.Sequential:
    """As in several_epochs.py."""
    return nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 10))


def by_lightning(kind: str, epochs: int) -> None:
    """PyTorch Lightning, with a validation or a checkpoint after each epoch."""
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def validation_step(self, batch: list[Tensor], index: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.network(batch[0]), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    saved = kind == "lightning_saved"
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=saved, enable_progress_bar=False
    )
    validation = DataLoader(Readings(SAMPLES // 5, ""), BATCH) if kind == "lightning_validated" else None
    trainer.fit(Module(), DataLoader(Readings(SAMPLES, ""), BATCH, shuffle=True), validation)


def by_huggingface(kind: str, epochs: int) -> None:
    """Hugging Face's Trainer, with an evaluation after each epoch."""
    from transformers import Trainer, TrainingArguments

    class Named(Dataset[dict[str, Tensor]]):
        def __init__(self, samples: int) -> None:
            self.readings = Readings(samples, "")

        def __len__(self) -> int:
            return len(self.readings)

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            inputs, labels = self.readings[index]
            return {"inputs": inputs, "labels": labels}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
            logits = self.network(inputs)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    arguments = TrainingArguments(
        "out",
        num_train_epochs=epochs,
        per_device_train_batch_size=BATCH,
        eval_strategy="epoch" if kind == "huggingface_evaluated" else "no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(Model(), arguments, train_dataset=Named(SAMPLES), eval_dataset=Named(SAMPLES // 5)).train()


def by_accelerate(epochs: int) -> None:
    """Accelerate's loop."""
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), network()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(Readings(SAMPLES, ""), BATCH, shuffle=True)
    )
    for _ in range(epochs):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    if options.kind.startswith("lightning"):
        by_lightning(options.kind, options.epochs)
    elif options.kind == "accelerate":
        by_accelerate(options.epochs)
    else:
        by_huggingface(options.kind, options.epochs)


if __name__ == "__main__":
    main()
