"""Clause classification for commercial contracts with a small BERT.

Texts are assembled from clause templates (no client data in this repo). A domain
WordPiece vocabulary is trained once and cached next to the corpus. During training,
party names are partly replaced by [PARTY] so that the classifier does not memorise
who usually signs what.
"""
import json
import logging
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

logger = logging.getLogger(__name__)

WORK = Path(tempfile.gettempdir()) / "clause_bert"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PARTY]"]
TEMPLATES = {
    "termination": "Either party may terminate this agreement upon {n} days written notice to {a} if {b} fails to cure a material breach {x}",
    "confidentiality": "{a} shall hold in strict confidence all proprietary information disclosed by {b} for a period of {n} months {x}",
    "indemnity": "{a} agrees to indemnify and hold harmless {b} from any claim , loss or liability arising out of {x}",
    "governing_law": "This agreement is governed by the laws of {x} and the courts of {a} have exclusive jurisdiction over {b}",
    "payment": "{b} shall pay all undisputed invoices of {a} within {n} days of receipt , failing which interest accrues {x}",
    "assignment": "Neither {a} nor {b} may assign its rights under section {n} without prior consent {x}",
    "force_majeure": "{a} is not liable for delay caused by events beyond its reasonable control , including {x} affecting {b}",
    "warranty": "{a} warrants to {b} that the goods conform to schedule {n} and are free from defects {x}",
}
LABELS = sorted(TEMPLATES)


@dataclass
class Settings:
    documents: int = 8000
    vocab_size: int = 24000
    max_length: int = 96
    party_dropout: float = 0.3
    batch_size: int = 16
    steps: int = 2500
    threads: int = 1
    seed: int = 13


def make_corpus(cfg: Settings):
    path = WORK / f"clauses_{cfg.documents}.jsonl"
    if not path.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        rng = random.Random(cfg.seed)
        syll = [c + v + t for c in "bdfgklmnprstvz" for v in "aeiou" for t in ("", "n", "r", "s", "l")]
        words = ["".join(rng.choice(syll) for _ in range(rng.randint(2, 4))) for _ in range(24000)]
        with path.open("w") as f:
            for _ in range(cfg.documents):
                label = rng.choice(LABELS)
                a, b = (" ".join(rng.choice(words).capitalize() for _ in range(2)) + " Ltd" for _ in range(2))
                x = " ".join(rng.choice(words) for _ in range(rng.randint(10, 26)))
                text = TEMPLATES[label].format(a=a, b=b, n=rng.randint(5, 90), x=x)
                f.write(json.dumps({"text": text, "label": label, "parties": [a, b]}) + "\n")
    with path.open() as f:
        return [json.loads(line) for line in f]


def build_tokenizer(cfg: Settings, texts):
    path = WORK / f"wordpiece_{cfg.vocab_size}.json"
    if not path.exists():
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tok.normalizer = normalizers.BertNormalizer(lowercase=True)
        tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tok.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=cfg.vocab_size, special_tokens=SPECIAL))
        tok.save(str(path))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(path), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=cfg.max_length,
    )


class ClauseDataset(Dataset):
    def __init__(self, rows, tokenizer, cfg: Settings, training: bool):
        self.rows, self.tokenizer, self.cfg, self.training = rows, tokenizer, cfg, training

    def __len__(self):
        return len(self.rows)

    def party_pieces(self, row):
        pieces = set()
        for name in row["parties"]:
            pieces.update(self.tokenizer.tokenize(name))
        return pieces

    def __getitem__(self, i):
        row = self.rows[i]
        tokens = self.tokenizer.tokenize(row["text"])[: self.cfg.max_length - 2]
        if self.training:
            parties = self.party_pieces(row)
            tokens = [
                "[PARTY]" if t in parties and random.random() < self.cfg.party_dropout else t
                for t in tokens
            ]
        vocab = self.tokenizer.get_vocab()
        unk = vocab["[UNK]"]
        ids = [vocab["[CLS]"]] + [vocab.get(t, unk) for t in tokens] + [vocab["[SEP]"]]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": LABELS.index(row["label"])}


def compute_metrics(pred):
    return {"accuracy": float((np.argmax(pred.predictions, axis=1) == pred.label_ids).mean())}


def main():
    logging.basicConfig(level=logging.INFO)
    cfg = Settings()
    rows = make_corpus(cfg)
    tokenizer = build_tokenizer(cfg, [r["text"] for r in rows])
    held_out = 320
    train_set = ClauseDataset(rows[held_out:], tokenizer, cfg, training=True)
    eval_set = ClauseDataset(rows[:held_out], tokenizer, cfg, training=False)
    logger.info("%d clauses, vocabulary of %d pieces", len(rows), len(tokenizer))

    torch.manual_seed(cfg.seed)
    torch.set_num_threads(cfg.threads)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(tokenizer), hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256, max_position_embeddings=cfg.max_length, num_labels=len(LABELS),
        pad_token_id=tokenizer.pad_token_id,
    ))
    training_args = TrainingArguments(
        output_dir=str(WORK / "runs"),
        max_steps=cfg.steps,
        per_device_train_batch_size=cfg.batch_size,
        per_device_eval_batch_size=64,
        learning_rate=5e-4,
        warmup_steps=100,
        weight_decay=0.01,
        logging_steps=50,
        eval_strategy="steps",
        eval_steps=1000,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=cfg.seed,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    logger.info("final: %s", trainer.evaluate())


if __name__ == "__main__":
    main()
