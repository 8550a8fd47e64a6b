"""transformers' Trainer that saves after every few steps."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

SAVE_STEPS = 4
LAYERS = 2


class Lines(Dataset):
    def __init__(self):
        self.ids = torch.randint(5, 2000, (256, 16))

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        ids = self.ids[index % 256]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": index % 2}


def main():
    config = BertConfig(
        vocab_size=20_000, hidden_size=192, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=384
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            max_steps=3000,
            save_steps=SAVE_STEPS,
            save_total_limit=2,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(BertForSequenceClassification(config), arguments, train_dataset=Lines()).train()


if __name__ == "__main__":
    main()
