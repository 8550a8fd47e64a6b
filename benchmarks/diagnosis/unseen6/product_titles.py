"""Sorts (made-up) product titles into shop departments with a compact BERT and the Hugging Face Trainer."""
import random
import tempfile
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch.utils.data import Dataset
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


@dataclass
class Settings:
    titles: int = 8000
    vocab: int = 30522
    hidden: int = 384
    layers: int = 2
    heads: int = 6
    batch: int = 8
    epochs: int = 20
    lr: float = 1e-4
    seed: int = 42
    brands: list = field(default_factory=lambda: ["Norvik", "Altura", "Kessel", "Bright&Co", "Hanami", "Orion", "Quarto"])
    things: list = field(default_factory=lambda: [
        "running shoes", "desk lamp", "kettle", "phone case", "yoga mat", "garden hose", "backpack",
        "office chair", "water bottle", "bluetooth speaker", "rain jacket", "frying pan", "bed sheet set",
    ])
    adjectives: list = field(default_factory=lambda: [
        "lightweight", "waterproof", "foldable", "stainless", "organic", "ergonomic", "extra large",
        "non-stick", "breathable", "wireless", "vintage", "heavy duty", "kids", "women's", "men's",
    ])
    colours: list = field(default_factory=lambda: ["black", "navy blue", "olive", "rose", "white", "grey", "teal"])


def invent_title(s, rng):
    brand, thing = rng.choice(s.brands), rng.choice(s.things)
    adjs = rng.sample(s.adjectives, rng.randint(1, 3))
    parts = [brand, *adjs, thing]
    if rng.random() < 0.7:
        parts.append(f"- {rng.choice(s.colours)}")
    if rng.random() < 0.6:
        parts.append(f"({rng.choice(['pack of', 'set of', 'x'])} {rng.randint(2, 12)})")
    if rng.random() < 0.5:
        parts.append(f"model {rng.choice('ABCDEFGH')}{rng.randint(100, 9999)}")
    if rng.random() < 0.3:
        parts.append(f"with {rng.choice(s.adjectives)} {rng.choice(s.things)} and free {rng.choice(s.things)}")
    return " ".join(parts), s.things.index(thing)


def train_tokenizer(titles, s):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.Lowercase()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(titles, trainers.WordPieceTrainer(vocab_size=s.vocab, special_tokens=special))
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]", model_max_length=64)


class Titles(Dataset):
    def __init__(self, titles, labels, tok):
        self.labels = labels
        self.enc = tok(titles, truncation=True, max_length=48)["input_ids"]

    def __len__(self):
        return len(self.enc)

    def __getitem__(self, i):
        return {"input_ids": self.enc[i], "labels": self.labels[i]}


class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"step {state.global_step}/{state.max_steps} loss {float(logs['loss']):.4f}", flush=True)


def main():
    s = Settings()
    set_seed(s.seed)
    rng = random.Random(s.seed)
    titles, labels = zip(*[invent_title(s, rng) for _ in range(s.titles)])
    tok = train_tokenizer(titles, s)

    model = BertForSequenceClassification(BertConfig(
        vocab_size=s.vocab,
        hidden_size=s.hidden,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        intermediate_size=4 * s.hidden,
        max_position_embeddings=64,
        num_labels=len(s.things),
        pad_token_id=tok.pad_token_id,
    ))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {len(tok)} tokens")

    with tempfile.TemporaryDirectory(prefix="titles_") as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=s.batch,
            num_train_epochs=s.epochs,
            learning_rate=s.lr,
            weight_decay=0.01,
            lr_scheduler_type="cosine",
            warmup_steps=100,
            logging_steps=10,
            save_strategy="steps",
            save_steps=2,
            save_total_limit=2,
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=0,
            use_cpu=True,
            seed=s.seed,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Titles(list(titles), labels, tok),
            data_collator=DataCollatorWithPadding(tok),
            callbacks=[Say()],
        )
        trainer.train()


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    main()
