"""Recognise ten kinds of flowers on camera photos with a small ViT, trained from a config."""
import json
import os
import tempfile

import numpy as np
import torch
from datasets import load_dataset
from PIL import Image, ImageDraw, ImageFilter
from torchvision import transforms
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

ROOT = os.path.join(tempfile.gettempdir(), "flower_photos")
KINDS = ["daisy", "tulip", "rose", "aster", "lily", "poppy", "iris", "clover", "dahlia", "orchid"]
SIZE = 96
PHOTOS = 320
MEAN, STD = (0.45, 0.47, 0.38), (0.24, 0.23, 0.25)


def draw_flower(rng, kind, width=1280, height=960):
    """One blossom before a meadow; number, shape and colour of the petals follow the kind."""
    rough = rng.integers(40, 140, (15, 20, 3)).astype(np.uint8)
    rough[..., 1] += 60
    photo = Image.fromarray(rough).resize((width, height), Image.BICUBIC)
    draw = ImageDraw.Draw(photo)
    cx, cy = rng.uniform(0.35, 0.65) * width, rng.uniform(0.35, 0.65) * height
    radius = rng.uniform(0.2, 0.33) * height
    petals = 5 + kind % 5 * 3
    tint = np.array([[230, 80, 90], [240, 230, 240], [150, 90, 220], [250, 200, 60]])[kind % 4]
    tint = tuple(int(v) for v in np.clip(tint + rng.normal(0, 15, 3), 0, 255))
    turn = rng.uniform(0, np.pi)
    for k in range(petals):
        angle = turn + 2 * np.pi * k / petals
        x, y = cx + 0.6 * radius * np.cos(angle), cy + 0.6 * radius * np.sin(angle)
        r = radius * (0.3 + 0.03 * (kind // 5) * (k % 2))
        draw.ellipse([x - r, y - r, x + r, y + r], fill=tint, outline=(60, 60, 60), width=3)
    r = radius * 0.3
    draw.ellipse([cx - r, cy - r, cx + r, cy + r], fill=(90, 60, 20 + 20 * (kind % 3)))
    photo = photo.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.5)))
    pixels = np.asarray(photo, dtype=np.int16)
    noise = rng.integers(-10, 11, pixels.shape[:2] + (1,), dtype=np.int16)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def make_photos():
    if os.path.exists(os.path.join(ROOT, "photos", "validation", "metadata.jsonl")):
        return
    rng = np.random.default_rng(9)
    for split, count in [("train", PHOTOS), ("validation", PHOTOS // 8)]:
        folder = os.path.join(ROOT, "photos", split)
        os.makedirs(folder, exist_ok=True)
        lines = []
        for number in range(count):
            kind = int(rng.integers(len(KINDS)))
            name = f"IMG_{number:04d}.jpg"
            draw_flower(rng, kind).save(os.path.join(folder, name), quality=88)
            lines.append(json.dumps({"file_name": name, "label": kind}))
        with open(os.path.join(folder, "metadata.jsonl"), "w") as f:
            f.write("\n".join(lines) + "\n")


def collate(examples):
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["label"] for example in examples]),
    }


def compute_metrics(prediction):
    order = np.argsort(-prediction.predictions, axis=1)
    truth = prediction.label_ids[:, None]
    return {
        "top1": float((order[:, :1] == truth).any(1).mean()),
        "top3": float((order[:, :3] == truth).any(1).mean()),
    }


def main():
    set_seed(2)
    make_photos()
    photos = load_dataset(
        "imagefolder", data_dir=os.path.join(ROOT, "photos"), cache_dir=os.path.join(ROOT, "cache")
    )

    augment = transforms.Compose([
        transforms.RandomResizedCrop(SIZE, scale=(0.5, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.2, 0.2, 0.2),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ])
    plain = transforms.Compose([
        transforms.Resize(SIZE + 16),
        transforms.CenterCrop(SIZE),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ])

    def prepare_train(batch):
        batch["pixel_values"] = [augment(image.convert("RGB")) for image in batch.pop("image")]
        return batch

    def prepare_validation(batch):
        batch["pixel_values"] = [plain(image.convert("RGB")) for image in batch.pop("image")]
        return batch

    train = photos["train"].with_transform(prepare_train)
    validation = photos["validation"].with_transform(prepare_validation)

    config = ViTConfig(
        image_size=SIZE,
        patch_size=12,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        num_labels=len(KINDS),
        id2label=dict(enumerate(KINDS)),
        label2id={name: k for k, name in enumerate(KINDS)},
    )
    model = ViTForImageClassification(config)
    arguments = TrainingArguments(
        output_dir=os.path.join(ROOT, "run"),
        num_train_epochs=100,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=6e-4,
        warmup_steps=60,
        weight_decay=0.05,
        lr_scheduler_type="cosine",
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=collate,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    trainer.save_model(os.path.join(ROOT, "model"))


if __name__ == "__main__":
    main()
