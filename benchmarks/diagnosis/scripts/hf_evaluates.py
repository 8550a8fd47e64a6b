"""transformers' Trainer with an evaluation every few steps."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

EVAL_STEPS = 10
HELD_BACK = 400


class Comments(Dataset):
    def __init__(self, count):
        self.count = count
        self.ids = torch.randint(5, 900, (64, 32))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"input_ids": self.ids[index % 64], "labels": index % 3}


def main():
    config = DistilBertConfig(vocab_size=1000, dim=64, n_layers=2, n_heads=4, hidden_dim=128, num_labels=3)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32,
            max_steps=3000,
            eval_strategy="steps",
            eval_steps=EVAL_STEPS,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        model = DistilBertForSequenceClassification(config)
        Trainer(model, arguments, train_dataset=Comments(20_000), eval_dataset=Comments(HELD_BACK)).train()


if __name__ == "__main__":
    main()
