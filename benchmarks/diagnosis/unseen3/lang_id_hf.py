"""Language identification on raw bytes with a small BERT and the Hugging Face Trainer."""
import os
import random
import tempfile
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer,
                          TrainerCallback, TrainingArguments)
import time

SYLLABLES = {
    0: ["ka", "to", "mi", "no", "shi", "ra", "ha"],
    1: ["sch", "ein", "und", "ber", "ge", "ung", "ten"],
    2: ["eau", "le", "ment", "que", "oi", "tion", "re"],
    3: ["the", "ing", "wh", "er", "ly", "and", "ou"],
}


@dataclass
class DataArgs:
    corpus: str = field(default=os.path.join(tempfile.gettempdir(), "lang_id.txt"))
    n_lines: int = 6000
    max_len: int = 192


def write_corpus(args):
    if os.path.exists(args.corpus):
        return
    rnd = random.Random(3)
    with open(args.corpus + ".part", "w") as f:
        for _ in range(args.n_lines):
            lang = rnd.randrange(4)
            words = ["".join(rnd.choices(SYLLABLES[lang], k=rnd.randint(1, 3))) for _ in range(rnd.randint(8, 40))]
            f.write(f"{lang}\t{' '.join(words)}\n")
    os.replace(args.corpus + ".part", args.corpus)


class Lines(Dataset):
    def __init__(self, args):
        self.rows = [line.rstrip("\n").split("\t") for line in open(args.corpus)]
        self.max_len = args.max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        lang, text = self.rows[i]
        return {"input_ids": [b + 1 for b in text.encode()[:self.max_len]], "labels": int(lang)}


class ByteCollator:
    def __init__(self, pad_id=0):
        self.pad_id = pad_id

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        ids = torch.full((len(features), longest), self.pad_id, dtype=torch.long)
        mask = torch.zeros((len(features), longest), dtype=torch.long)
        for row, feature in enumerate(features):
            for col, token in enumerate(feature["input_ids"]):
                ids[row, col] = token
                mask[row, col] = 1
        labels = torch.tensor([f["labels"] for f in features])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class Speed(TrainerCallback):
    def on_train_begin(self, args, state, control, **kw):
        self.t = time.time()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step % 10 == 0:
            rate = state.global_step * args.per_device_train_batch_size / (time.time() - self.t)
            print(f"step {state.global_step}: {rate:.1f} lines/s", flush=True)


def main():
    (data_args,) = HfArgumentParser(DataArgs).parse_args_into_dataclasses()
    write_corpus(data_args)
    config = BertConfig(vocab_size=257, hidden_size=48, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=96, max_position_embeddings=256, num_labels=4)
    training_args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), "lang_id_out"),
        per_device_train_batch_size=24, num_train_epochs=40, learning_rate=5e-4,
        logging_steps=50, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model=BertForSequenceClassification(config), args=training_args,
                      train_dataset=Lines(data_args), data_collator=ByteCollator(), callbacks=[Speed()])
    trainer.train()


if __name__ == "__main__":
    main()
