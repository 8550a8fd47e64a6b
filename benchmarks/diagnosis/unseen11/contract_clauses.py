# Clause type classifier for commercial contracts (fine-tuning stage).
#
# Runs with the HF Trainer so that the model can be pushed to our registry
# afterwards. The production run starts from the in-house checkpoint; without
# access to it the encoder is initialised from scratch, which is fine for smoke
# tests and for the nightly build.
import json
import os
import random
import tempfile

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

WORK = os.path.join(tempfile.gettempdir(), "contract_clauses")
LABELS = ["indemnity", "termination", "confidentiality", "governing_law",
          "payment", "warranty", "assignment", "force_majeure"]

PARTS = {
    "indemnity": "indemnify hold harmless losses damages claims arising third party defend",
    "termination": "terminate written notice breach cure period days expiry effect",
    "confidentiality": "confidential information disclose receiving disclosing secret recipient",
    "governing_law": "governed construed laws courts jurisdiction venue arbitration exclusive",
    "payment": "invoice payable fees net days interest late tax currency",
    "warranty": "warrants merchantability fitness purpose defects conform specifications",
    "assignment": "assign transfer consent successors assigns delegate merger affiliate",
    "force_majeure": "flood strike war epidemic delay beyond reasonable control event",
}
GLUE = ("the party shall not be liable under this agreement for any and all to of "
        "in accordance with each other provided that such without prior subject "
        "herein hereof thereof may upon either its their as set forth section").split()


def write_clauses(path, n, seed):
    rnd = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(n):
            y = rnd.randrange(len(LABELS))
            own = PARTS[LABELS[y]].split()
            other = PARTS[rnd.choice(LABELS)].split()
            words = []
            for _ in range(rnd.randint(70, 90)):
                u = rnd.random()
                src = own if u < 0.2 else other if u < 0.3 else GLUE
                words.append(rnd.choice(src))
            f.write(json.dumps({"text": " ".join(words), "label": y}) + "\n")


def prepare():
    os.makedirs(WORK, exist_ok=True)
    train, dev = os.path.join(WORK, "train.jsonl"), os.path.join(WORK, "dev.jsonl")
    if not os.path.exists(dev):
        write_clauses(train, 12000, 3)
        write_clauses(dev, 256, 4)
    tok_file = os.path.join(WORK, "tokenizer.json")
    if not os.path.exists(tok_file):
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tok.pre_tokenizer = pre_tokenizers.Whitespace()
        with open(train) as f:
            texts = [json.loads(line)["text"] for line in f]
        tok.train_from_iterator(
            texts[:3000],
            trainers.WordPieceTrainer(
                vocab_size=1200,
                special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
        tok.save(tok_file)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=tok_file, pad_token="[PAD]", unk_token="[UNK]",
        cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return train, dev, tokenizer


def load_split(path, tokenizer, max_len):
    with open(path) as f:
        rows = [json.loads(line) for line in f]
    enc = tokenizer([r["text"] for r in rows], truncation=True, max_length=max_len)
    return Dataset.from_dict({
        "input_ids": enc["input_ids"],
        "attention_mask": enc["attention_mask"],
        "labels": [r["label"] for r in rows],
    })


def compute_metrics(p):
    pred = np.argmax(p.predictions, axis=1)
    per_class = [
        float((pred[p.label_ids == k] == k).mean()) if (p.label_ids == k).any() else 0.0
        for k in range(len(LABELS))
    ]
    return {"accuracy": float((pred == p.label_ids).mean()),
            "macro_recall": float(np.mean(per_class))}


class JsonLog(TrainerCallback):
    """One line per logging event, picked up by the build server."""

    def __init__(self, path):
        self.path = path

    def on_log(self, args, state, control, logs=None, **kwargs):
        with open(self.path, "a") as f:
            f.write(json.dumps({"step": state.global_step, **(logs or {})}) + "\n")


def main():
    set_seed(11)
    train_file, dev_file, tokenizer = prepare()
    train_ds = load_split(train_file, tokenizer, 96)
    dev_ds = load_split(dev_file, tokenizer, 96)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={n: i for i, n in enumerate(LABELS)},
    )
    model = BertForSequenceClassification(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, "
          f"{len(train_ds)} clauses")

    args = TrainingArguments(
        output_dir=os.path.join(WORK, "out"),
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        learning_rate=3e-4,
        weight_decay=0.01,
        warmup_steps=100,
        lr_scheduler_type="cosine",
        num_train_epochs=4,
        logging_steps=50,
        eval_strategy="steps",
        eval_steps=500,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=0,
        skip_memory_metrics=False,
        use_cpu=True,
        seed=11,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=dev_ds,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
        callbacks=[JsonLog(os.path.join(WORK, "log.jsonl"))],
    )
    result = trainer.train()
    metrics = result.metrics
    metrics.update(trainer.evaluate())
    trainer.save_metrics("all", metrics)
    trainer.save_model(os.path.join(WORK, "model"))
    for k in sorted(metrics):
        print(f"{k:40s} {metrics[k]}")


if __name__ == "__main__":
    main()
