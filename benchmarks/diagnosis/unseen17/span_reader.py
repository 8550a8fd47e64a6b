"""Extractive question answering over harbour log entries.

Every entry of the log is a short passage; the question asks for a captain, a cargo, a berth or an hour,
and the answer is a span of the passage.
"""
import json
import os
import random
import tempfile

import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    DefaultDataCollator,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

FOLDER = os.path.join(tempfile.gettempdir(), "harbour_log_qa")
MAX_LENGTH = 384
DOC_STRIDE = 128

SHIPS = ["Aurora", "Bellona", "Calypso", "Dorothea", "Elbe", "Fulmar", "Gannet", "Halcyon", "Iris", "Juno", "Kestrel"]
CAPTAINS = ["Ingrid Sund", "Paul Mercer", "Ana Duarte", "Tom Okafor", "Lena Brandt", "Hugo Petit", "Mara Quist"]
CARGOES = ["barley", "cedar planks", "copper ore", "dried fish", "machine parts", "olive oil", "paper rolls", "salt"]
PORTS = ["Bergen", "Cadiz", "Gdansk", "Hull", "Lisbon", "Malmo", "Riga", "Rotterdam", "Tallinn"]
REMARKS = [
    "The wind turned to the west before noon.",
    "Two pilots were on duty and a third was called in from the outer station.",
    "The crane at the north quay was under repair.",
    "Fog lay over the channel until the bells rang.",
    "Customs officers inspected the papers and found nothing amiss.",
    "A small crowd had gathered near the lighthouse.",
    "The tide was lower than the almanac had promised.",
    "The harbour master ordered the lamps to be lit early.",
]


def make_entry(rng):
    ship, captain, cargo = rng.choice(SHIPS), rng.choice(CAPTAINS), rng.choice(CARGOES)
    port, berth = rng.choice(PORTS), str(rng.randint(1, 60))
    hour = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    facts = [
        f"The {ship} arrived from {port} at {hour}.",
        f"Captain {captain} reported a load of {cargo}.",
        f"The vessel was sent to berth {berth}.",
    ]
    remarks = [rng.choice(REMARKS) for _ in range(rng.randint(1, 7))]
    sentences = facts[:]
    for remark in remarks:
        sentences.insert(rng.randint(0, len(sentences)), remark)
    context = " ".join(sentences)
    question, answer, key = rng.choice(
        [
            (f"Who was the captain of the {ship}?", captain, f"Captain {captain}"),
            (f"What did the {ship} carry?", cargo, f"load of {cargo}"),
            (f"At which berth did the {ship} lie?", berth, f"berth {berth}"),
            (f"When did the {ship} arrive?", hour, f"at {hour}"),
        ]
    )
    start = context.index(key) + key.index(answer)
    return {"context": context, "question": question, "answer": answer, "answer_start": start}


def make_data():
    os.makedirs(FOLDER, exist_ok=True)
    rng = random.Random(17)
    for name, count in [("validation", 200), ("train", 8000)]:
        path = os.path.join(FOLDER, f"{name}.json")
        if not os.path.exists(path):
            with open(path, "w") as f:
                for _ in range(count):
                    f.write(json.dumps(make_entry(rng)) + "\n")


def get_tokenizer(entries):
    path = os.path.join(FOLDER, "tokenizer")
    if not os.path.isdir(path):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        raw.normalizer = normalizers.BertNormalizer()
        raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        texts = (text for entry in entries for text in (entry["context"], entry["question"]))
        raw.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special))
        raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        fast = PreTrainedTokenizerFast(
            tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
        )
        fast.save_pretrained(path)
    return PreTrainedTokenizerFast.from_pretrained(path)


def main():
    make_data()
    files = {name: os.path.join(FOLDER, f"{name}.json") for name in ("train", "validation")}
    raw = load_dataset("json", data_files=files, cache_dir=os.path.join(FOLDER, "cache"))
    tokenizer = get_tokenizer(raw["train"])

    def prepare(examples):
        encoded = tokenizer(
            examples["question"],
            examples["context"],
            truncation="only_second",
            max_length=MAX_LENGTH,
            stride=DOC_STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length",
        )
        sample_of = encoded.pop("overflow_to_sample_mapping")
        offsets = encoded.pop("offset_mapping")
        starts, ends = [], []
        for i, spans in enumerate(offsets):
            first_char = examples["answer_start"][sample_of[i]]
            last_char = first_char + len(examples["answer"][sample_of[i]])
            sequence = encoded.sequence_ids(i)
            inside = [k for k, (a, b) in enumerate(spans) if sequence[k] == 1 and a < last_char and b > first_char]
            starts.append(inside[0] if inside else 0)
            ends.append(inside[-1] if inside else 0)
        encoded["start_positions"] = starts
        encoded["end_positions"] = ends
        return encoded

    data = raw.map(prepare, batched=True, remove_columns=raw["train"].column_names)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=512,
    )
    model = BertForQuestionAnswering(config)

    def exact_match(prediction):
        start_logits, end_logits = prediction.predictions
        start_labels, end_labels = prediction.label_ids
        hit = (start_logits.argmax(-1) == start_labels) & (end_logits.argmax(-1) == end_labels)
        return {"exact_match": float(np.mean(hit))}

    args = TrainingArguments(
        output_dir=os.path.join(FOLDER, "run"),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=32,
        learning_rate=5e-4,
        weight_decay=0.01,
        num_train_epochs=8,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=50,
        report_to="none",
        seed=5,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
        data_collator=DefaultDataCollator(),
        compute_metrics=exact_match,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
