"""transformers' Trainer with a data set that makes its samples when asked."""

import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

LENGTH = 14_000
STEP_MS = 45


class Walks(Dataset):
    """Random walks on a graph, one value after the other."""

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        draw = random.Random(index)
        node, visits = 0, [0] * 100
        for _ in range(LENGTH):
            node = (node + draw.choice((1, 7, 13))) % 100
            visits[node] += 1
        return {"visits": torch.tensor(visits, dtype=torch.float32), "labels": index % 2}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, visits, labels):
        time.sleep(STEP_MS / 1000)  # in place of an accelerator
        logits = self.layers(visits)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            max_steps=4000,
            save_strategy="no",
            report_to="none",
            logging_steps=200,
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(model=Net(), args=arguments, train_dataset=Walks()).train()


if __name__ == "__main__":
    main()
