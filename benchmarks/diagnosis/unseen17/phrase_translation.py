"""Translation of timetable phrases from English to German with a small Marian model.

The corpus is a JSON-lines file of sentence pairs built from a phrase book of a railway company. Source and target
share one unigram tokenizer. The BLEU of the development set is followed during the training.
"""
import json
import math
import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

FOLDER = Path(tempfile.gettempdir()) / "railway_phrases"

CITIES = ["Munich=München", "Cologne=Köln", "Hamburg=Hamburg", "Vienna=Wien", "Zurich=Zürich", "Nuremberg=Nürnberg"]
DAYS = ["Monday=Montag", "Tuesday=Dienstag", "Wednesday=Mittwoch", "Thursday=Donnerstag", "Friday=Freitag"]
TRAINS = ["the night train=der Nachtzug", "the express=der Schnellzug", "the local train=der Regionalzug"]
REASONS = [
    "because of works on the line=wegen Bauarbeiten an der Strecke",
    "because of a storm=wegen eines Sturms",
    "because of a broken signal=wegen einer Signalstörung",
]
PATTERNS = [
    "On {day} {train} to {city} leaves at {hour} from platform {track} .="
    "Am {day} fährt {train} nach {city} um {hour} von Gleis {track} ab .",
    "{train} from {city} is {delay} minutes late {reason} .="
    "{train} aus {city} hat {delay} Minuten Verspätung {reason} .",
    "Travellers to {city} please change to platform {track} , {train} departs at {hour} .="
    "Reisende nach {city} bitte zu Gleis {track} wechseln , {train} fährt um {hour} .",
    "{reason} {train} to {city} does not run on {day} .="
    "{reason} verkehrt {train} nach {city} am {day} nicht .",
]


def make_pair(rng):
    slots = {"day": DAYS, "train": TRAINS, "city": CITIES, "reason": REASONS}
    chosen = {name: rng.choice(values).split("=") for name, values in slots.items()}
    numbers = {
        "hour": f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}",
        "track": str(rng.randint(1, 24)),
        "delay": str(rng.randint(3, 90)),
    }
    sides = rng.choice(PATTERNS).split("=")
    english = sides[0].format(**{k: v[0] for k, v in chosen.items()}, **numbers)
    german = sides[1].format(**{k: v[1] for k, v in chosen.items()}, **numbers)
    return {"en": english[0].upper() + english[1:], "de": german[0].upper() + german[1:]}


def make_data():
    FOLDER.mkdir(exist_ok=True)
    rng = random.Random(23)
    for name, count in [("dev", 800), ("train", 20000)]:
        path = FOLDER / f"{name}.jsonl"
        if not path.exists():
            path.write_text("\n".join(json.dumps(make_pair(rng), ensure_ascii=False) for _ in range(count)), "utf-8")


def get_tokenizer(pairs):
    folder = FOLDER / "tokenizer"
    if not folder.exists():
        raw = Tokenizer(models.Unigram())
        raw.pre_tokenizer = pre_tokenizers.Metaspace()
        raw.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"
        )
        raw.train_from_iterator((text for pair in pairs for text in (pair["en"], pair["de"])), trainer)
        raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        fast = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
        fast.save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def bleu(hypotheses, references, order=4):
    matches, totals, hyp_length, ref_length = [0] * order, [0] * order, 0, 0
    for hypothesis, reference in zip(hypotheses, references):
        h, r = hypothesis.split(), reference.split()
        hyp_length, ref_length = hyp_length + len(h), ref_length + len(r)
        for n in range(1, order + 1):
            h_grams = Counter(tuple(h[i : i + n]) for i in range(len(h) - n + 1))
            r_grams = Counter(tuple(r[i : i + n]) for i in range(len(r) - n + 1))
            matches[n - 1] += sum((h_grams & r_grams).values())
            totals[n - 1] += sum(h_grams.values())
    if min(matches) == 0:
        return 0.0
    precision = sum(math.log(m / t) for m, t in zip(matches, totals)) / order
    return 100 * math.exp(precision + min(0.0, 1 - ref_length / hyp_length))


def main():
    make_data()
    files = {name: str(FOLDER / f"{name}.jsonl") for name in ("train", "dev")}
    raw = load_dataset("json", data_files=files, cache_dir=str(FOLDER / "cache"))
    tokenizer = get_tokenizer(raw["train"])

    def encode(batch):
        features = tokenizer(batch["en"], max_length=64, truncation=True)
        features["labels"] = tokenizer(batch["de"], max_length=64, truncation=True)["input_ids"]
        return features

    data = raw.map(encode, batched=True, remove_columns=["en", "de"])

    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=128,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = MarianMTModel(config)

    def compute_metrics(prediction):
        predicted = np.where(prediction.predictions < 0, tokenizer.pad_token_id, prediction.predictions)
        labels = np.where(prediction.label_ids < 0, tokenizer.pad_token_id, prediction.label_ids)
        hypotheses = tokenizer.batch_decode(predicted, skip_special_tokens=True)
        references = tokenizer.batch_decode(labels, skip_special_tokens=True)
        return {"bleu": bleu(hypotheses, references)}

    args = Seq2SeqTrainingArguments(
        output_dir=str(FOLDER / "run"),
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=1e-3,
        label_smoothing_factor=0.1,
        warmup_steps=200,
        num_train_epochs=10,
        eval_strategy="steps",
        eval_steps=100,
        predict_with_generate=True,
        generation_max_length=64,
        generation_num_beams=4,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        seed=2,
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
