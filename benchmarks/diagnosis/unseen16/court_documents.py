"""Sort court documents into eight fields of law with a small BERT trained from scratch."""
import json
import os
import random
import tempfile

import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

ROOT = os.path.join(tempfile.gettempdir(), "court_documents")
FIELDS = ["tenancy", "labour", "family", "traffic", "tax", "patent", "inheritance", "building"]
MAX_LENGTH = 512


def make_words(rng, n):
    syllables = ["ba", "con", "de", "fi", "gra", "hem", "in", "jur", "ka", "lex", "mo", "nis",
                 "or", "pla", "quo", "ren", "sta", "ti", "ul", "ver", "wen", "xi", "zo"]
    words = set()
    while len(words) < n:
        words.add("".join(rng.choice(syllables) for _ in range(rng.randint(2, 4))))
    return sorted(words)


def make_document(rng, general, special, label):
    """Rulings are mostly short orders; a few are full judgments of several pages."""
    length = int(min(900, max(20, rng.lognormvariate(4.4, 0.75))))
    words = rng.choices(general, k=length)
    for position in range(length):
        if rng.random() < 0.10:
            words[position] = rng.choice(special[label])
        elif rng.random() < 0.05:
            words[position] = rng.choice(special[rng.randrange(len(FIELDS))])
    sentences = []
    while words:
        n = rng.randint(6, 18)
        sentences.append(" ".join(words[:n]).capitalize() + ".")
        words = words[n:]
    return " ".join(sentences)


def make_corpus():
    if os.path.exists(os.path.join(ROOT, "done")):
        return
    os.makedirs(ROOT, exist_ok=True)
    rng = random.Random(17)
    general = make_words(rng, 3000)
    special = [rng.sample(general, 60) for _ in FIELDS]
    for split, count in [("train", 8000), ("validation", 400)]:
        with open(os.path.join(ROOT, split + ".jsonl"), "w") as f:
            for number in range(count):
                label = rng.randrange(len(FIELDS))
                text = make_document(rng, general, special, label)
                f.write(json.dumps({"id": f"{split}-{number}", "text": text, "field": FIELDS[label]}) + "\n")
    train_tokenizer()
    open(os.path.join(ROOT, "done"), "w").close()


def train_tokenizer():
    def texts():
        with open(os.path.join(ROOT, "train.jsonl")) as f:
            for number, line in enumerate(f):
                if number < 2000:
                    yield json.loads(line)["text"]

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=4000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))],
    )
    tokenizer.save(os.path.join(ROOT, "tokenizer.json"))


def compute_metrics(prediction):
    guesses = prediction.predictions.argmax(-1)
    accuracy = (guesses == prediction.label_ids).mean()
    recalls = [
        (guesses[prediction.label_ids == k] == k).mean()
        for k in range(len(FIELDS))
        if (prediction.label_ids == k).any()
    ]
    return {"accuracy": float(accuracy), "macro_recall": float(np.mean(recalls))}


def main():
    set_seed(3)
    make_corpus()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(ROOT, "tokenizer.json"),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=MAX_LENGTH,
    )
    documents = load_dataset(
        "json",
        data_files={split: os.path.join(ROOT, split + ".jsonl") for split in ("train", "validation")},
        cache_dir=os.path.join(ROOT, "cache"),
    )

    def tokenize(batch):
        encoded = tokenizer(batch["text"], padding="max_length", truncation=True, max_length=MAX_LENGTH)
        encoded["label"] = [FIELDS.index(name) for name in batch["field"]]
        return encoded

    documents = documents.map(tokenize, batched=True, remove_columns=["id", "text", "field"])

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=MAX_LENGTH,
        num_labels=len(FIELDS),
        id2label=dict(enumerate(FIELDS)),
        label2id={name: k for k, name in enumerate(FIELDS)},
    )
    model = BertForSequenceClassification(config)
    print(f"{model.num_parameters() / 1e6:.2f} M parameters, {len(documents['train'])} documents")

    arguments = TrainingArguments(
        output_dir=os.path.join(ROOT, "run"),
        num_train_epochs=8,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=32,
        learning_rate=5e-4,
        warmup_steps=100,
        weight_decay=0.01,
        logging_steps=25,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=documents["train"],
        eval_dataset=documents["validation"],
        processing_class=tokenizer,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model(os.path.join(ROOT, "model"))


if __name__ == "__main__":
    main()
