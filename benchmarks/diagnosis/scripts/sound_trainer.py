"""A small BERT with transformers' Trainer, logged and saved at intervals."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

LENGTH = 48


class Titles(Dataset):
    def __init__(self):
        self.ids = torch.randint(5, 3000, (512, LENGTH))

    def __len__(self):
        return 40_000

    def __getitem__(self, index):
        return {"input_ids": self.ids[index % 512], "labels": index % 4}


def main():
    config = BertConfig(
        vocab_size=3000,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        num_labels=4,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=16,
            max_steps=5000,
            save_steps=2500,
            logging_steps=100,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(BertForSequenceClassification(config), arguments, train_dataset=Titles()).train()


if __name__ == "__main__":
    main()
