"""Image-text pairs: photographs of fruit trays and their captions, matched with a small CLIP.

The photographs come from a tray camera (1280 x 960 JPEG). Captions are kept in captions.json.
The loop is written with accelerate.
"""
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from PIL import Image, ImageDraw, ImageFilter
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch.utils.data import DataLoader
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig, PreTrainedTokenizerFast
from transformers import get_cosine_schedule_with_warmup

FOLDER = Path(tempfile.gettempdir()) / "orchard_captions"
FRUIT = {"apples": (190, 40, 45), "pears": (185, 190, 70), "plums": (95, 45, 110), "oranges": (235, 140, 30)}
TRAYS = {"wooden": (150, 110, 70), "white": (225, 225, 220), "green": (80, 130, 85)}
COUNTS = ["one", "two", "three", "four", "five", "six"]
SIZE = 64
EPOCHS = 100
BATCH = 16


def draw_tray(rng, fruit, tray, count):
    base = np.array(TRAYS[tray]) + rng.normal(0, 6, (120, 160, 3))
    image = Image.fromarray(base.clip(0, 255).astype(np.uint8)).resize((1280, 960), Image.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(count):
        x, y, r = rng.uniform(150, 1130), rng.uniform(150, 810), rng.uniform(80, 140)
        colour = tuple(int(c) for c in np.clip(np.array(FRUIT[fruit]) + rng.normal(0, 12, 3), 0, 255))
        draw.ellipse([x - r, y - r * 0.95, x + r, y + r * 0.95], fill=colour)
        draw.ellipse([x - r * 0.5, y - r * 0.6, x - r * 0.2, y - r * 0.3], fill=(250, 245, 235))
    image = image.filter(ImageFilter.GaussianBlur(2))
    grain = rng.integers(-8, 9, (960, 1280, 1), dtype=np.int16)
    return Image.fromarray((np.asarray(image, dtype=np.int16) + grain).clip(0, 255).astype(np.uint8))


def make_data():
    if (FOLDER / "captions.json").exists():
        return
    FOLDER.mkdir(exist_ok=True)
    rng, words = np.random.default_rng(31), random.Random(31)
    records = []
    for i in range(240):
        fruit, tray, count = words.choice(list(FRUIT)), words.choice(list(TRAYS)), words.randint(1, 6)
        name = f"tray_{i:04d}.jpg"
        draw_tray(rng, fruit, tray, count).save(FOLDER / name, quality=90)
        caption = words.choice(["{n} {f} on a {t} tray", "a {t} tray with {n} {f}", "photo of {n} {f} in a {t} tray"])
        records.append({"image": name, "caption": caption.format(n=COUNTS[count - 1], f=fruit, t=tray)})
    (FOLDER / "captions.json").write_text(json.dumps(records, indent=1))


def make_tokenizer(captions):
    special = ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]
    raw = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.train_from_iterator(captions, trainers.WordLevelTrainer(special_tokens=special))
    raw.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
    )


def main():
    make_data()
    accelerator = Accelerator()
    torch.manual_seed(6)
    records = json.loads((FOLDER / "captions.json").read_text())
    tokenizer = make_tokenizer([r["caption"] for r in records])

    def transform(batch):
        pixels = []
        for name in batch["image"]:
            image = Image.open(FOLDER / name)
            image = image.convert("RGB").resize((SIZE, SIZE), Image.BICUBIC)
            array = np.asarray(image, dtype=np.float32) / 255
            pixels.append(torch.from_numpy((array - 0.5) / 0.25).permute(2, 0, 1))
        return {"pixel_values": pixels, "caption": batch["caption"]}

    def collate(examples):
        batch = tokenizer([e["caption"] for e in examples], padding=True, return_tensors="pt")
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "pixel_values": torch.stack([e["pixel_values"] for e in examples]),
        }

    dataset = Dataset.from_list(records).train_test_split(test_size=32, seed=1)
    dataset.set_transform(transform)
    train_loader = DataLoader(dataset["train"], batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
    test_loader = DataLoader(dataset["test"], batch_size=BATCH, collate_fn=collate)

    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    vision = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIZE,
        patch_size=8,
    )
    model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 40, EPOCHS * len(train_loader))
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for batch in train_loader:
            loss = model(**batch, return_loss=True).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())

        model.eval()
        hits = total = 0
        with torch.no_grad():
            for batch in test_loader:
                logits = model(**batch).logits_per_image
                hits += (logits.argmax(1) == torch.arange(len(logits), device=logits.device)).sum().item()
                total += len(logits)
        accelerator.print(f"epoch {epoch}: loss {np.mean(losses):.3f}, retrieval in batch {hits / total:.3f}")


if __name__ == "__main__":
    main()
