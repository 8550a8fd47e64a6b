"""Multiple choice: which of four sentences is the next step of a recipe?

Each item has the four steps so far and four candidate continuations. The items live in CSV files; the encoder is
a small BERT from random weights and the loop is written with accelerate.
"""
import csv
import random
import tempfile
from pathlib import Path

import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import Dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import BertConfig, BertForMultipleChoice, PreTrainedTokenizerFast, get_linear_schedule_with_warmup

FOLDER = Path(tempfile.gettempdir()) / "recipe_steps"
CHOICES = 4
EPOCHS = 6
BATCH = 8

FOODS = ["the onions", "the carrots", "the lentils", "the dough", "the mushrooms", "the potatoes", "the beans"]
STAGES = [
    ["Wash {f} under cold water and let them drain.", "Rinse {f} twice and dry them with a cloth."],
    ["Cut {f} into pieces of the size of a thumb.", "Chop {f} as finely as you like."],
    ["Heat the oil in a wide pan and add {f}.", "Melt some butter in a heavy pot and put in {f}."],
    ["Stir {f} until they take on a little colour.", "Turn {f} now and then so that nothing burns."],
    ["Pour in the broth and cover {f} with a lid.", "Add two cups of water to {f} and close the pot."],
    ["Season {f} with salt, pepper and a bay leaf.", "Add cumin and a pinch of salt to {f}."],
    ["Serve {f} in deep bowls with fresh parsley.", "Put {f} on warm plates and serve at once."],
]


def make_item(rng):
    food = rng.choice(FOODS)
    begin = rng.randint(0, 2)
    cut = begin + 4
    steps = [rng.choice(STAGES[k]).format(f=food) for k in range(begin, cut)]
    right = rng.choice(STAGES[cut]).format(f=food)
    others = rng.sample([k for k in range(len(STAGES)) if k != cut], CHOICES - 1)
    options = [rng.choice(STAGES[k]).format(f=food) for k in others]
    label = rng.randint(0, CHOICES - 1)
    options.insert(label, right)
    return {"context": " ".join(steps), **{f"option_{i}": text for i, text in enumerate(options)}, "label": label}


def make_data():
    FOLDER.mkdir(exist_ok=True)
    rng = random.Random(44)
    for name, count in [("test", 240), ("train", 6000)]:
        path = FOLDER / f"{name}.csv"
        if path.exists():
            continue
        items = [make_item(rng) for _ in range(count)]
        with open(path, "w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, fieldnames=list(items[0]))
            writer.writeheader()
            writer.writerows(items)


def make_tokenizer(frame):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer()
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.train_from_iterator(frame["context"].tolist(), trainers.WordPieceTrainer(vocab_size=800, special_tokens=special))
    raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def evaluate(model, loader, accelerator):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for batch in loader:
            predictions = model(**batch).logits.argmax(-1)
            predictions, labels = accelerator.gather_for_metrics((predictions, batch["labels"]))
            right += (predictions == labels).sum().item()
            total += len(labels)
    model.train()
    return right / total


def main():
    make_data()
    set_seed(9)
    accelerator = Accelerator(mixed_precision="bf16")
    train_frame, test_frame = pd.read_csv(FOLDER / "train.csv"), pd.read_csv(FOLDER / "test.csv")
    tokenizer = make_tokenizer(train_frame)

    def collate(items):
        contexts = [item["context"] for item in items for _ in range(CHOICES)]
        options = [item[f"option_{i}"] for item in items for i in range(CHOICES)]
        encoded = tokenizer(contexts, options, padding=True, truncation=True, max_length=128, return_tensors="pt")
        batch = {
            key: encoded[key].view(len(items), CHOICES, -1)
            for key in ("input_ids", "attention_mask", "token_type_ids")
        }
        batch["labels"] = torch.tensor([item["label"] for item in items])
        return batch

    train_set, test_set = Dataset.from_pandas(train_frame), Dataset.from_pandas(test_frame)
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test_set, batch_size=2 * BATCH, collate_fn=collate)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=768,
        max_position_embeddings=128,
    )
    model = BertForMultipleChoice(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    steps = EPOCHS * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, steps // 20, steps)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    bar = tqdm(total=steps, disable=not accelerator.is_local_main_process)
    running = None
    for epoch in range(EPOCHS):
        model.train()
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
            bar.set_postfix(loss=f"{running:.3f}")
            bar.update(1)
        accuracy = evaluate(model, test_loader, accelerator)
        accelerator.print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}")
    accelerator.save_model(model, str(FOLDER / "model"))


if __name__ == "__main__":
    main()
