"""Masked language modelling of Python source code.

The corpus is the source of the standard library, cut at function and class level and kept in one Parquet file.
A byte-level BPE tokenizer is trained on it, then a small RoBERTa from random weights.
"""
import ast
import math
import os
import sysconfig
import tempfile
from itertools import chain
from pathlib import Path

import pandas as pd
from datasets import load_dataset
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    DataCollatorForLanguageModeling,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

FOLDER = Path(tempfile.gettempdir()) / "stdlib_code"
BLOCK = 128
VOCABULARY = 4000


def collect_snippets():
    rows = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue
        lines = source.splitlines()
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                rows.append({"module": path.stem, "name": node.name, "code": code})
    return pd.DataFrame(rows)


def make_data():
    FOLDER.mkdir(exist_ok=True)
    train_file, test_file = FOLDER / "train.parquet", FOLDER / "test.parquet"
    if not test_file.exists():
        frame = collect_snippets().sample(frac=1.0, random_state=3)
        held_out = len(frame) // 40
        frame[held_out:].to_parquet(train_file, index=False)
        frame[:held_out].to_parquet(test_file, index=False)
    return {"train": str(train_file), "test": str(test_file)}


def get_tokenizer(dataset):
    folder = FOLDER / "tokenizer"
    if not folder.exists():
        bpe = ByteLevelBPETokenizer()
        bpe.train_from_iterator(
            (row["code"] for row in dataset),
            vocab_size=VOCABULARY,
            min_frequency=2,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        )
        bpe.save(str(FOLDER / "bpe.json"))
        tokenizer = RobertaTokenizerFast(tokenizer_file=str(FOLDER / "bpe.json"))
        tokenizer.save_pretrained(folder)
    return RobertaTokenizerFast.from_pretrained(folder)


class PerplexityPrinter(TrainerCallback):
    """Shows the held-out perplexity next to the loss."""

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if metrics and "eval_loss" in metrics:
            print(f"step {state.global_step}: perplexity {math.exp(metrics['eval_loss']):.1f}")


def main():
    files = make_data()
    raw = load_dataset("parquet", data_files=files, cache_dir=str(FOLDER / "cache"))
    tokenizer = get_tokenizer(raw["train"])

    def tokenize(batch):
        return tokenizer(batch["code"], return_special_tokens_mask=True)

    def group(batch):
        joined = {key: list(chain.from_iterable(batch[key])) for key in batch}
        total = len(joined["input_ids"]) // BLOCK * BLOCK
        return {key: [values[i : i + BLOCK] for i in range(0, total, BLOCK)] for key, values in joined.items()}

    tokenized = raw.map(tokenize, batched=True, remove_columns=raw["train"].column_names)
    blocks = tokenized.map(group, batched=True)
    print(f"{len(blocks['train'])} training blocks, {len(blocks['test'])} held-out blocks, {len(tokenizer)} tokens")

    config = RobertaConfig(
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=BLOCK + 2,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = RobertaForMaskedLM(config)
    print(f"{model.num_parameters() / 1e6:.1f} M parameters")

    args = TrainingArguments(
        output_dir=str(FOLDER / "run"),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=1e-3,
        warmup_steps=100,
        weight_decay=0.01,
        max_steps=6000,
        eval_strategy="steps",
        eval_steps=500,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        seed=11,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=blocks["train"],
        eval_dataset=blocks["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        callbacks=[PerplexityPrinter()],
    )
    trainer.train()
    trainer.save_model(str(FOLDER / "final"))


if __name__ == "__main__":
    main()
