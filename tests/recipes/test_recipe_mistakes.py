"""Mistakes in recipes: each is one line that names the key, what it says and what is allowed, with exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flatout.cli import main
from flatout.recipes.reading import read_recipe

# What stands in the file, and what the line has to hold.
IN_FILES: list[tuple[str, list[str]]] = [
    ("training: {epochs: 0}", ["mine.yaml:1", "training.epochs", "greater than 0", "0"]),
    ("training: {epochs: -3}", ["training.epochs", "greater than 0", "-3"]),
    ("training: {epochs: 2.5}", ["training.epochs", "integer", "2.5"]),
    ("training: {epochs: ten}", ["training.epochs", "integer", "ten"]),
    ("training: {epochs: null}", ["training.epochs", "integer"]),
    ("training: {epochs: [3]}", ["training.epochs", "integer", "[3]"]),
    ("training: {batch_size: 0}", ["training.batch_size", "greater than 0", "0"]),
    ("training: {batch_size: 33, mixup: 0.2}", ["training.batch_size", "33", "pairs"]),
    ("training: {validation_batch_size: 0}", ["training.validation_batch_size", "greater than 0"]),
    ("training: {validate_every: 200}", ["training.validate_every", "200", "90 epochs"]),
    ("training: {accumulate: 0}", ["training.accumulate", "greater than 0"]),
    ("training: {precision: fp8}", ["training.precision", "auto, fp32, bf16 or fp16", "fp8"]),
    ("training: {precision: 16}", ["training.precision", "auto, fp32, bf16 or fp16", "16"]),
    ("training: {compile: 'yes'}", ["training.compile", "off, default", "yes"]),
    ("training: {tf32: maybe}", ["training.tf32", "valid boolean", "maybe"]),
    ("training: {label_smoothing: 1.0}", ["training.label_smoothing", "less than 1", "1.0"]),
    ("training: {label_smoothing: -0.1}", ["training.label_smoothing", "greater than or equal to 0", "-0.1"]),
    ("training: {mixup: -1}", ["training.mixup", "greater than or equal to 0", "-1"]),
    ("training: {mixup: .inf}", ["training.mixup", "finite", "inf"]),
    ("training: {mix_mode: all}", ["training.mix_mode", "batch, pair or elem", "all"]),
    ("training: {mix_probability: 2}", ["training.mix_probability", "less than or equal to 1", "2"]),
    ("training: {loss: mse}", ["training.loss", "cross-entropy, bce, poly, asymmetric or jsd", "mse"]),
    ("training: {loss: asymmetric, mixup: 0.2}", ["training.loss", "takes no mixed targets", "bce"]),
    ("training: {loss: jsd}", ["training.splits", "views of an image", "give 3"]),
    ("training: {splits: 2, cutmix: 1}", ["training.splits", "not with mixup and cutmix"]),
    ("training: {splits: 2}\nimages: {repeats: 3}", ["images.repeats", "not with training.splits 2"]),
    ("training: {bce_sum: true}", ["training.bce_sum", "training.loss: bce"]),
    ("training: {bce_positive_weight: 0}", ["training.bce_positive_weight", "greater than 0"]),
    ("training: {poly_epsilon: 1}", ["training.poly_epsilon", "training.loss: poly"]),
    ("training: {cutmix_range: [0.5, 0.2]}", ["training.cutmix_range", "0.5 to 0.2 is no range"]),
    ("training: {cutmix_range: 0.5}", ["training.cutmix_range", "a list of 2 numbers", "0.5"]),
    ("training: {batch_size: 33, cutmix_range: [0.2, 0.5]}", ["training.batch_size", "33", "pairs"]),
    ("training: {clip_mode: unit}", ["training.clip_mode", "norm, value or agc", "unit"]),
    ("images: {policy_deviation: -1}", ["images.policy_deviation", "greater than or equal to 0"]),
    ("model: {head_scale: 0}", ["model.head_scale", "greater than 0"]),
    ("model: {options: max}", ["model.options", "section", "max"]),
    ("optimizer: {layer_decay_least: 2}", ["optimizer.layer_decay_least", "less than or equal to 1"]),
    ("schedule: {name: plateau}", ["schedule.name", "cosine, tanh, poly", "plateau"]),
    ("schedule: {cycles: 0}", ["schedule.cycles", "greater than or equal to 1"]),
    ("schedule: {name: step, cycles: 3}", ["schedule.cycles", "cosine, tanh, poly", "step"]),
    ("schedule: {name: tanh, k_decay: 2}", ["schedule.k_decay", "cosine, poly", "tanh"]),
    ("schedule: {cooldown_epochs: 85}", ["schedule.cooldown_epochs", "none of the 90 epochs"]),
    ("schedule: {name: constant, cooldown_epochs: 2}", ["schedule.cooldown_epochs", "rsqrt", "constant"]),
    ("schedule: {decay_share: 1}", ["schedule.decay_share", "less than 1"]),
    ("training: {bce_threshold: 0.2}", ["training.bce_threshold", "training.loss: bce"]),
    ("training: {ema_decay: 1}", ["training.ema_decay", "less than 1", "1"]),
    ("training: {ema_warmup: true}", ["training.ema_warmup", "training.ema_decay"]),
    ("training: {clip_gradients: -1}", ["training.clip_gradients", "greater than or equal to 0"]),
    ("training: {early_stopping: 3}", ["training.early_stopping", "section", "{patience: 5}", "3"]),
    ("training: {early_stopping: {patience: 0}}", ["training.early_stopping.patience", "greater than 0"]),
    ("training: {early_stopping: {patiance: 3}}", ["patiance", "unknown key", "patience"]),
    ("training: {early_stopping: {}}\ndata: {validation: null}", ["training.early_stopping", "nothing to score"]),
    ("training: {max_time: soon}", ["training.max_time", "soon"]),
    ("training: {max_time: 0s}", ["training.max_time", "0s"]),
    ("training: {seed: -1}", ["training.seed", "greater than or equal to 0", "-1"]),
    ("training: {seed: 99999999999}", ["training.seed", "less than or equal to 4294967295"]),
    ("training: 3", ["training", "section", "{epochs: 90}", "3"]),
    ("trainning: {epochs: 3}", ["trainning", "unknown key", "did you mean training?"]),
    ("epochs: 3", ["epochs", "belongs to training.epochs"]),
    ("name: resnet50", ["name", "unknown key"]),
    ("images: {size: 4}", ["images.size", "greater than or equal to 8", "4"]),
    ("images: {size: 224px}", ["images.size", "integer", "224px"]),
    ("images: {size: [224, 224]}", ["images.size", "integer", "[224, 224]"]),
    ("images: {validation_crop: 0}", ["images.validation_crop", "greater than 0"]),
    ("images: {crop_scale: 0.5}", ["images.crop_scale", "a list of 2 numbers", "[0.08, 1.0]", "0.5"]),
    ("images: {crop_scale: [0.5]}", ["images.crop_scale", "a list of 2 numbers", "[0.5]"]),
    ("images: {crop_scale: [0.1, 0.5, 1]}", ["images.crop_scale", "a list of 2 numbers"]),
    ("images: {crop_scale: [0.5, 0.2]}", ["images.crop_scale", "0.5 to 0.2 is no range"]),
    ("images: {crop_scale: [0, 1]}", ["images.crop_scale", "0.0 to 1.0 is no range"]),
    ("images: {crop_ratio: [2, 1]}", ["images.crop_ratio", "first must not be above the second"]),
    ("images: {mean: 0.5}", ["images.mean", "a list of 3 numbers", "0.5"]),
    ("images: {mean: [0.5, 0.5]}", ["images.mean", "a list of 3 numbers"]),
    ("images: {std: [0, 1, 1]}", ["images.std", "greater than 0"]),
    ("images: {decoder: opencv}", ["images.decoder", "torchvision, pillow, nvjpeg or dali", "opencv"]),
    ("images: {interpolation: nearest}", ["images.interpolation", "bilinear or bicubic", "nearest"]),
    ("images: {crop_mode: border}", ["images.crop_mode", "center or squash", "border"]),
    ("images: {workers: 0}", ["images.workers", "auto or a number from 1 on", "0"]),
    ("images: {workers: many}", ["images.workers", "auto or a number from 1 on", "many"]),
    ("images: {backend: fork}", ["images.backend", "auto, threads or processes", "fork"]),
    ("images: {flip: 50}", ["images.flip", "less than or equal to 1", "50"]),
    ("images: {policy: rand-m9}", ["images.policy", "none, randaugment", "rand-m9"]),
    ("images: {policy_magnitude: 40}", ["images.policy_magnitude", "less than or equal to 30"]),
    ("images: {erasing_mode: white}", ["images.erasing_mode", "const, rand or pixel", "white"]),
    ("images: {repeats: 0}", ["images.repeats", "greater than or equal to 1"]),
    ("images: {color_jitter: 0.4}", ["images.color_jitter", "unknown key", "colour_jitter"]),
    ("model: resnet50", ["model", "section", "{name: resnet50}"]),
    ("model: {name: 50}", ["model.name", "string", "50"]),
    ("model: {name: resnet19}", ["model.name", "no model 'resnet19'", "did you mean"]),
    ("model: {weights: nowhere.pth}", ["model.weights", "nowhere.pth", "random, hub or a local file"]),
    ("model: {in_chans: 4}", ["model.in_chans", "1 or 3", "4"]),
    ("model: {dropout: 1.5}", ["model.dropout", "less than or equal to 1", "1.5"]),
    ("model: {pretrained: true}", ["model.pretrained", "unknown key"]),
    ("optimizer: {name: adamm}", ["optimizer.name", "no optimizer 'adamm'", "did you mean", "adam"]),
    ("optimizer: {lr: 0}", ["optimizer.lr", "greater than 0", "0"]),
    ("optimizer: {lr: .nan}", ["optimizer.lr", "nan"]),
    ("optimizer: {lr_scaling: quadratic}", ["optimizer.lr_scaling", "linear, sqrt or off"]),
    ("optimizer: {betas: 0.9}", ["optimizer.betas", "a list of 2 numbers", "[0.9, 0.999]"]),
    ("optimizer: {layer_decay: 0}", ["optimizer.layer_decay", "greater than 0"]),
    ("optimizer: {options: 3}", ["optimizer.options", "section", "3"]),
    ("schedule: {name: exponential}", ["schedule.name", "cosine, tanh, poly", "exponential"]),
    ("schedule: {warmup_epochs: 90}", ["schedule.warmup_epochs", "90 of 90 epochs"]),
    ("schedule: {milestones: [60, 30]}", ["schedule.milestones", "[60, 30]", "rising"]),
    ("schedule: {final_lr_share: 2}", ["schedule.final_lr_share", "less than or equal to 1"]),
    ("data: {format: zip}", ["data.format", "auto, folders, csv, shards, packed or hf", "zip"]),
    ("data: {format: csv}", ["data.labels", "null", "csv"]),
    ("data: {bad_files: ignore}", ["data.bad_files", "error or skip", "ignore"]),
    ("data: {classes: 0}", ["data.classes", "greater than 0"]),
    ("data: {keep_indices: true}", ["data.keep_indices", "data.classes"]),
    ("data: {root: nowhere}", ["nowhere", "no such folder"]),
    ("folds: 5", ["folds", "section", "{count: 5}", "5"]),
    ("folds: {count: 1}", ["folds.count", "greater than or equal to 2", "1"]),
    ("checkpoints: {metric: accuracy}", ["checkpoints.metric", "val/acc1, val/acc5 or val/loss", "accuracy"]),
    ("checkpoints: {keep: 0}", ["checkpoints.keep", "greater than 0"]),
    ("checkpoints: {every_steps: -1}", ["checkpoints.every_steps", "greater than or equal to 0"]),
    ("logging: {wandb: true}", ["logging.wandb", "off, offline or online", "true"]),
    ("logging: {every_steps: 0}", ["logging.every_steps", "greater than 0"]),
    ("task: detection", ["task", "image-classification", "detection"]),
    ("training:\n  epochs: 1\n  epochs: 2", ["mine.yaml:3", "duplicate key"]),
    ("training: [1", ["mine.yaml", "correct the YAML"]),
    ("- a\n- b", ["mine.yaml", "keys and values"]),
    ("\tepochs: 1", ["mine.yaml:1", "correct the YAML"]),
    ("training: {epochs: 1}\n---\ntraining: {epochs: 2}", ["mine.yaml:2", "second document"]),
    ("training: {seed: 2024-01-02}", ["training.seed", "integer", "2024-01-02"]),
    ("training: {seed: 2024-13-45}", ["mine.yaml", "cannot be read", "correct the YAML"]),
    ("training: {seed: !!float abc}", ["mine.yaml", "cannot be read", "correct the YAML"]),
    ("training: {seed: !!set {a, b}}", ["training.seed", "integer"]),
    ("training: {seed: !mine 3}", ["training.seed", "integer", "3"]),
    ("training: {seed: 1e99999}", ["training.seed", "finite"]),
    ("images: {size: .inf}", ["images.size", "finite", "inf"]),
    ("? [a, b]\n: 1", ["mine.yaml", "unknown key"]),
    ("training: &a {seed: *a}", ["mine.yaml:1", "inside of itself"]),
    ("training: *nowhere", ["mine.yaml:1", "undefined alias"]),
    ("epochs: \0", ["mine.yaml", "not allowed"]),
]

# Small texts that stand for a lot.
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
ENDLESS: dict[str, tuple[bytes, str]] = {
    "nested brackets": (b"[" * 5000, "32 levels"),
    "nested dashes": (b"- " * 5000 + b"1", "32 levels"),
    "a long integer": (b"training: {seed: " + b"9" * 6000 + b"}", "6,000 characters"),
    "a long hexadecimal integer": (b"training: {seed: 0x" + b"f" * 1990 + b"}", "training.seed"),
    "aliases of aliases": (BOMB.encode(), "10,000 values"),
    "many values": (b"training: {seed: [" + b"1, " * 20_000 + b"]}", "10,000 values"),
    "a large file": (b"# " + b"x" * (1 << 20), "1,048,576 bytes"),
    "no text": (bytes(range(256)), "no text"),
}

BY_OPTIONS: list[tuple[list[str], list[str]]] = [
    (["--set", "training.epoch=3"], ["--set training.epoch=3", "did you mean training.epochs?"]),
    (["--set", "training.epochs"], ["--set training.epochs", "key=value"]),
    (["--set", "training.epochs=["], ["--set training.epochs=[", "no YAML value"]),
    (["--set", f"training.seed={'9' * 5000}"], ["training.seed", "no YAML value", "5,000 characters"]),
    (["--set", f"training.seed={'[' * 5000}"], ["training.seed", "no YAML value", "32 levels"]),
    (["--set", "training.seed=1\n---\n2"], ["training.seed", "no YAML value", "second document"]),
    (["--set", "training.epochs.more=1"], ["--set training.epochs.more=1", "is a value, not a section"]),
    (["--set", "images.crop_scale=[0.5, 2]"], ["--set images.crop_scale=[0.5, 2]", "less than or equal to 1"]),
    (["--set", "schedule.warmup_epochs=7"], ["--set schedule.warmup_epochs=7", "7 of 6 epochs"]),
    (
        ["--epochs", "1", "--set", "schedule.warmup_epochs=1"],
        ["--set schedule.warmup_epochs=1", "1 of 1 epochs", "--set schedule.warmup_epochs=0.1"],
    ),
    (["--epochs", "0"], ["--epochs 0", "training.epochs", "greater than 0"]),
    (["--batch-size", "-4"], ["--batch-size -4", "training.batch_size", "greater than 0"]),
    (["--max-time", "never"], ["--max-time never", "training.max_time"]),
    (["--set", "logging.wandb=online"], ["logging.wandb", "not installed", "pip install wandb"]),
    (["--set", "logging.mlflow=file:x"], ["logging.mlflow", "not installed", "pip install mlflow"]),
    (["--allow-change", "training.epochs"], ["--allow-change", "belongs to --resume"]),
    (["--resume", "--allow-change", "training.epoch"], ["training.epoch", "did you mean training.epochs?"]),
    (["--resume"], ["--resume", "no such checkpoint", "start without --resume"]),
    (["--output", "/proc/version/run"], ["--output /proc/version/run", "Not a directory", "another folder"]),
]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    code = main(["train", *arguments])
    said = capsys.readouterr().err
    assert code == 2, said
    assert said.startswith("flatout: ") and said.count("\n") == 1, said
    return said


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("text", "words"), IN_FILES, ids=[text for text, _ in IN_FILES])
def test_a_mistake_in_a_file(text: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    said = refused(["mine.yaml"], capsys)
    assert [word for word in words if word not in said] == [], said
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["mine.yaml"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", list(ENDLESS))
def test_a_text_that_stands_for_more_than_a_recipe_is_refused_at_once(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, word = ENDLESS[what]
    (tmp_path / "mine.yaml").write_bytes(text)
    said = refused(["mine.yaml"], capsys)
    assert word in said and "fault of flatout" not in said and len(said) < 1000


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "\ufefftraining: {epochs: 20}\n", "---\n"])
def test_a_document_without_keys_is_the_defaults(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert read_recipe("mine.yaml").task == "image-classification"


@pytest.mark.parametrize(("options", "words"), BY_OPTIONS, ids=[" ".join(options)[:60] for options, _ in BY_OPTIONS])
def test_a_mistake_in_options(
    options: list[str], words: list[str], photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(["demo", "--data", str(photographs), "--no-record", *options], capsys)
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize("command", ["train", "lr-find"])
@pytest.mark.parametrize("content", [b"- 1\n- 2\n", b"\xff\xfe\x00", b"training: {epoch: 3}", b"training: {epochs: x}"])
def test_a_mistake_in_the_file_is_told_without_importing_torch(tmp_path: Path, command: str, content: bytes) -> None:
    (tmp_path / "mine.yaml").write_bytes(content)
    code = (
        "import sys; from flatout.cli import main; code = main(sys.argv[1:]); "
        "print(code, [name for name in ('torch', 'timm', 'pytorch_lightning') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command, "mine.yaml"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "2 []\n"
    assert len(done.stderr.splitlines()) == 1 and "mine.yaml" in done.stderr


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("training: {epochs: 6}\nschedule: {warmup_epochs: 1}", {"training.epochs": 1}, "0.1 epochs instead of 1"),
        ("training: {epochs: 3}", {}, "0.3 epochs instead of 5"),
    ],
)
def test_a_warm_up_that_was_not_chosen_for_these_epochs_is_shortened(
    tmp_path: Path, content: str, options: dict[str, int], said: str
) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    notes: list[str] = []
    read = read_recipe(str(tmp_path / "mine.yaml"), (), options, notes)
    assert read.schedule.warmup_epochs == read.training.epochs / 10
    assert len(notes) == 1 and said in notes[0]
