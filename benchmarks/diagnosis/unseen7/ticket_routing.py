"""Route incoming service-desk tickets to one of 12 queues with a small BERT trained from scratch."""
import logging
import os
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
log = logging.getLogger("routing")

SEED = 77
VOCAB = 30000
PAD, CLS, SEP = 0, 1, 2
FIRST_WORD = 10
N_QUEUES = 12
MAX_LEN = 28
N_TRAIN, N_VALID = 12000, 600
WORK_DIR = os.path.join(tempfile.gettempdir(), "ticket_routing")


class TicketCorpus:
    """Generates token sequences with queue specific vocabulary on top of a Zipf background.

    About a third of the words of a ticket come from the vocabulary of its queue,
    the rest is everyday wording shared by all queues.
    """

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        ranks = np.arange(1, VOCAB - FIRST_WORD + 1)
        self.background = (1.0 / ranks) / (1.0 / ranks).sum()
        self.topic_words = [self.rng.choice(np.arange(FIRST_WORD + 200, VOCAB), 150, replace=False)
                            for _ in range(N_QUEUES)]

    def ticket(self):
        queue = int(self.rng.integers(N_QUEUES))
        length = int(self.rng.integers(18, MAX_LEN - 1))
        words = self.rng.choice(len(self.background), size=length, p=self.background) + FIRST_WORD
        on_topic = self.rng.random(length) < 0.3
        words[on_topic] = self.rng.choice(self.topic_words[queue], size=int(on_topic.sum()))
        if self.rng.random() < 0.03:
            queue = int(self.rng.integers(N_QUEUES))
        return words, queue

    def take(self, n):
        return [self.ticket() for _ in range(n)]


class TicketDataset(Dataset):
    def __init__(self, tickets):
        self.input_ids = torch.full((len(tickets), MAX_LEN), PAD, dtype=torch.long)
        self.mask = torch.zeros((len(tickets), MAX_LEN), dtype=torch.long)
        self.labels = torch.empty(len(tickets), dtype=torch.long)
        for i, (words, queue) in enumerate(tickets):
            ids = [CLS, *words.tolist(), SEP]
            self.input_ids[i, : len(ids)] = torch.tensor(ids)
            self.mask[i, : len(ids)] = 1
            self.labels[i] = queue

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.input_ids[i], "attention_mask": self.mask[i], "labels": self.labels[i]}


class ConsoleLog(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            log.info("step %d epoch %.2f loss %.4f lr %.2e", state.global_step, state.epoch,
                     float(logs["loss"]), float(logs["learning_rate"]))
        elif logs and "eval_accuracy" in logs:
            log.info("step %d accuracy %.3f", state.global_step, logs["eval_accuracy"])


def accuracy(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=768,
        max_position_embeddings=MAX_LEN,
        num_labels=N_QUEUES,
        pad_token_id=PAD,
        hidden_dropout_prob=0.1,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(SEED)
    corpus = TicketCorpus(SEED)
    train_ds = TicketDataset(corpus.take(N_TRAIN))
    valid_ds = TicketDataset(corpus.take(N_VALID))
    log.info("train %d, valid %d tickets", len(train_ds), len(valid_ds))

    model = build_model()
    log.info("%.1f M parameters", sum(p.numel() for p in model.parameters()) / 1e6)

    args = TrainingArguments(
        output_dir=WORK_DIR,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=64,
        num_train_epochs=60,
        learning_rate=3e-4,
        lr_scheduler_type="linear",
        warmup_steps=300,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=100,
        save_strategy="steps",
        save_steps=3,
        save_total_limit=2,
        eval_strategy="epoch",
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        seed=SEED,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=valid_ds,
        compute_metrics=accuracy,
        callbacks=[ConsoleLog()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
