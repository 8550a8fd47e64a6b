"""Small data sets, made here: pictures, scans, text, series, and models with random weights. Nothing is downloaded."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path

import numpy as np
from PIL import Image

SEED = 7


def pictures(folder: Path, count: int, side: int, classes: tuple[str, ...] = ("ants", "bees")) -> Path:
    """Noisy JPEGs in ``train/CLASS`` and ``val/CLASS``; ``side`` in pixels."""
    random_numbers = np.random.default_rng(SEED)
    for split, number in (("train", count), ("val", max(count // 8, 8))):
        for index in range(number):
            place = folder / split / classes[index % len(classes)]
            place.mkdir(parents=True, exist_ok=True)
            _picture(random_numbers, side).save(place / f"{index:05d}.jpg", quality=92)
    return folder


def detection(folder: Path, count: int, side: int) -> Path:
    """Pictures with boxes in YOLO's layout; returns the YAML that describes them."""
    random_numbers = np.random.default_rng(SEED)
    for split, number in (("train", count), ("val", 4)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for index in range(number):
            _picture(random_numbers, side).save(folder / "images" / split / f"{index:05d}.jpg", quality=92)
            (folder / "labels" / split / f"{index:05d}.txt").write_text("0 0.5 0.5 0.3 0.3\n1 0.2 0.2 0.1 0.2\n")
    described = folder / "data.yaml"
    described.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: ant, 1: bee}}\n")
    return described


def inspection(folder: Path, count: int, side: int) -> Path:
    """Pictures of good and broken parts, as programs for anomalies want them."""
    random_numbers = np.random.default_rng(SEED)
    for kind, number in (("good", count), ("broken", 8)):
        (folder / kind).mkdir(parents=True)
        for index in range(number):
            _picture(random_numbers, side).save(folder / kind / f"{index:05d}.jpg", quality=92)
    return folder


def _picture(random_numbers: np.random.Generator, side: int) -> Image.Image:
    small = random_numbers.integers(0, 255, (32, 32, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)


def scans(raw: Path, count: int, side: int) -> Path:
    """A data set of nnU-Net's raw format: volumes of three slices with one structure."""
    import nibabel

    random_numbers = np.random.default_rng(SEED)
    folder = raw / "Dataset001_Made"
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    for index in range(count):
        volume = random_numbers.normal(0, 1, (side, side, 4)).astype(np.float32)
        mask = np.zeros_like(volume, np.uint8)
        mask[side // 4 : side // 2, side // 4 : side // 2] = 1
        for name, values in ((f"imagesTr/case_{index:03d}_0000", volume + mask), (f"labelsTr/case_{index:03d}", mask)):
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / f"{name}.nii.gz")
    described = {
        "channel_names": {"0": "CT"},
        "labels": {"background": 0, "structure": 1},
        "numTraining": count,
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(described))
    return folder


def characters(folder: Path, count: int = 200_000) -> Path:
    """Tokens of single characters, as nanoGPT reads them."""
    folder.mkdir(parents=True)
    tokens = np.random.default_rng(SEED).integers(0, 65, count, dtype=np.uint16)
    for split in ("train", "val"):
        tokens.tofile(folder / f"{split}.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))
    return folder


def words(folder: Path, lines: int) -> Path:
    """A corpus of lines of words: train.txt, valid.txt, test.txt."""
    folder.mkdir(parents=True)
    chosen = random.Random(SEED)
    for split, number in (("train", lines), ("valid", 40), ("test", 40)):
        text = "\n".join(" ".join(f"word{chosen.randrange(200)}" for _ in range(20)) for _ in range(number))
        (folder / f"{split}.txt").write_text(text + "\n")
    return folder


def conversations(folder: Path, count: int) -> Path:
    """A JSON-lines file of texts, and a very small language model with its tokenizer beside it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    chosen = random.Random(SEED)
    (folder / "data").mkdir()
    with (folder / "data" / "train.jsonl").open("w") as file:
        for _ in range(count):
            text = " ".join(f"word{chosen.randrange(200)}" for _ in range(40))
            file.write(json.dumps({"text": text}) + "\n")
    vocabulary = {word: id for id, word in enumerate(["<unk>", "<pad>", "<eos>", *(f"word{n}" for n in range(200))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>", bos_token="<eos>"
    )
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=2
    )
    fast.save_pretrained(folder / "model")
    GPT2LMHeadModel(config).save_pretrained(folder / "model")
    return folder


def digits(folder: Path, count: int) -> Path:
    """MNIST's four files, in its raw format, with noise for digits."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    random_numbers = np.random.default_rng(SEED)
    for split, number in (("train", count), ("t10k", 200)):
        pixels = random_numbers.integers(0, 255, number * 784, dtype=np.uint8)
        labels = random_numbers.integers(0, 10, number, dtype=np.uint8)
        head = number.to_bytes(4, "big")
        side = (28).to_bytes(4, "big")
        (raw / f"{split}-images-idx3-ubyte").write_bytes(
            (2051).to_bytes(4, "big") + head + side + side + pixels.tobytes()
        )
        (raw / f"{split}-labels-idx1-ubyte").write_bytes((2049).to_bytes(4, "big") + head + labels.tobytes())
    return folder


def fingerprint(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file below a folder: to see whether anything was changed."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("__pycache__", ".flatout")]
        for name in names:
            state = os.lstat(os.path.join(place, name))
            found[os.path.relpath(os.path.join(place, name), folder)] = (state.st_size, state.st_mtime_ns)
    return found
