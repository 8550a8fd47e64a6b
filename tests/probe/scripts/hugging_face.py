"""A Hugging Face Trainer on a small random BERT: accumulation, evaluation and a checkpoint."""

import sys

import torch
from learning import seed
from telling import show
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Texts(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {"input_ids": torch.arange(6) + index, "attention_mask": torch.ones(6).long(), "labels": index % 2}


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            show(logs["loss"])


seed()
sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=8, **sizes))
Trainer(
    model,
    TrainingArguments(
        sys.argv[1],
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=Texts(),
    eval_dataset=Texts(),
    callbacks=[Losses()],
).train()
