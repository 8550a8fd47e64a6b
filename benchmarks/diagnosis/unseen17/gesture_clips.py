"""Recognition of hand gestures in short video clips with a small VideoMAE.

Clips are stored as uint8 arrays, one .npy file per clip, next to a CSV with the labels. They are normalised
once, written as a dataset to disk, and used from there.
"""
import csv
import tempfile
from pathlib import Path

import numpy as np
from datasets import Dataset, load_from_disk
from transformers import Trainer, TrainingArguments, VideoMAEConfig, VideoMAEForVideoClassification

FOLDER = Path(tempfile.gettempdir()) / "gesture_clips"
GESTURES = ["swipe_left", "swipe_right", "swipe_up", "swipe_down", "circle", "push"]
FRAMES, SIZE = 12, 48


def draw_clip(gesture, rng):
    """A bright hand-sized blob that moves over a noisy background."""
    t = np.linspace(-1, 1, FRAMES) * rng.uniform(0.6, 1.0)
    x, y = rng.normal(0, 0.1, 2)
    radius = np.full(FRAMES, rng.uniform(0.15, 0.25))
    path = {
        "swipe_left": (-t, 0 * t),
        "swipe_right": (t, 0 * t),
        "swipe_up": (0 * t, -t),
        "swipe_down": (0 * t, t),
        "circle": (0.6 * np.cos(np.pi * t), 0.6 * np.sin(np.pi * t)),
        "push": (0 * t, 0 * t),
    }[gesture]
    if gesture == "push":
        radius = radius * (1.6 + t)
    grid_y, grid_x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    colour = rng.uniform(0.6, 1.0, 3)
    clip = rng.uniform(0, 0.35, (FRAMES, SIZE, SIZE, 3))
    for i in range(FRAMES):
        distance = (grid_x - x - path[0][i]) ** 2 + (grid_y - y - path[1][i]) ** 2
        clip[i] += np.exp(-distance / radius[i] ** 2)[..., None] * colour * 0.65
    return (clip.clip(0, 1) * 255).astype(np.uint8)


def make_clips():
    if (FOLDER / "labels.csv").exists():
        return
    (FOLDER / "clips").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(8)
    rows = []
    for i in range(360):
        gesture = GESTURES[i % len(GESTURES)]
        np.save(FOLDER / "clips" / f"{i:04d}.npy", draw_clip(gesture, rng))
        rows.append([f"{i:04d}.npy", gesture, "test" if i >= 312 else "train"])
    with open(FOLDER / "labels.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["file", "gesture", "split"])
        writer.writerows(rows)


def get_dataset(split):
    target = FOLDER / f"prepared_{split}"
    if not target.exists():
        with open(FOLDER / "labels.csv", newline="") as f:
            rows = [row for row in csv.DictReader(f) if row["split"] == split]
        listing = Dataset.from_list([{"file": r["file"], "labels": GESTURES.index(r["gesture"])} for r in rows])

        def load(example):
            clip = np.load(FOLDER / "clips" / example["file"]).astype(np.float32) / 255
            clip = (clip - 0.45) / 0.225
            return {"pixel_values": clip.transpose(0, 3, 1, 2)}

        listing.map(load, remove_columns=["file"], writer_batch_size=32).save_to_disk(target)
    return load_from_disk(target)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    make_clips()
    train, test = get_dataset("train"), get_dataset("test")

    config = VideoMAEConfig(
        image_size=SIZE,
        patch_size=12,
        num_frames=FRAMES,
        tubelet_size=2,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        num_labels=len(GESTURES),
        id2label=dict(enumerate(GESTURES)),
        label2id={name: i for i, name in enumerate(GESTURES)},
    )
    model = VideoMAEForVideoClassification(config)

    args = TrainingArguments(
        output_dir=str(FOLDER / "run"),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=3e-4,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        weight_decay=0.05,
        num_train_epochs=120,
        eval_strategy="epoch",
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        seed=4,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=test,
        compute_metrics=accuracy,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
