"""Intent classification with a small BERT trained from scratch (Hugging Face Trainer)."""
import random
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

VERBS = ["play", "stop", "book", "cancel", "show", "find", "send", "remind"]
OBJECTS = ["song", "flight", "table", "weather", "message", "alarm", "movie", "train"]
FILLERS = ["please", "can", "you", "the", "a", "for", "me", "now", "today", "tomorrow", "in",
           "paris", "berlin", "with", "my", "friend", "at", "noon", "really", "quickly", "some"]
VOCAB = {w: i + 4 for i, w in enumerate(VERBS + OBJECTS + FILLERS)}
PAD, CLS, SEP, UNK = 0, 1, 2, 3
SEQ_LEN = 32


def make_utterance(rng):
    v, o = rng.randrange(len(VERBS)), rng.randrange(len(OBJECTS))
    words = [rng.choice(FILLERS) for _ in range(rng.randint(22, 27))]
    words.insert(rng.randrange(len(words)), VERBS[v])
    words.insert(rng.randrange(len(words)), OBJECTS[o])
    return words, (v * 3 + o) % 12


def encode(words):
    ids = [CLS] + [VOCAB.get(w, UNK) for w in words][: SEQ_LEN - 2] + [SEP]
    mask = [1] * len(ids) + [0] * (SEQ_LEN - len(ids))
    return ids + [PAD] * (SEQ_LEN - len(ids)), mask


class IntentDataset(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        ids, masks, labels = [], [], []
        for _ in range(n):
            words, label = make_utterance(rng)
            i, m = encode(words)
            ids.append(i)
            masks.append(m)
            labels.append(label)
        self.ids = torch.tensor(ids)
        self.masks = torch.tensor(masks)
        self.labels = torch.tensor(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.masks[i], "labels": self.labels[i]}


def compute_metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    acc = float((guess == pred.label_ids).mean())
    per_class = [float((guess[pred.label_ids == c] == c).mean()) for c in range(12)]
    return {"accuracy": acc, "worst_class": min(per_class)}


def main():
    set_seed(42)
    train_set = IntentDataset(768, seed=0)
    eval_set = IntentDataset(6000, seed=1)

    config = BertConfig(
        vocab_size=len(VOCAB) + 4,
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=768,
        max_position_embeddings=SEQ_LEN,
        num_labels=12,
    )
    model = BertForSequenceClassification(config)

    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="intent_"),
        num_train_epochs=120,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=3e-4,
        warmup_steps=50,
        weight_decay=0.01,
        lr_scheduler_type="linear",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=48,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
