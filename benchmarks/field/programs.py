"""The programs: how each is started, what it says of itself, and what is planted through its own options or data."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import material

QUICKSTARTS = Path(__file__).resolve().parent / "quickstarts"
COMMAND, SCRIPT, LIBRARY = "command of a package", "script of a repository", "loop of a library"


@dataclass(frozen=True)
class Places:
    """Where a program finds things: ``bin`` of the benchmark's environment, and ``data`` made here.

    In arguments and variables ``{work}`` stands for the folder of one run, ``{source}`` for a copy of the repository.
    """

    bin: Path
    data: Path


@dataclass(frozen=True)
class Meter:
    """What a program printed about itself.

    Attributes:
        steps: Training steps, the first one included; None where it does not say.
        step_s: Seconds of a step; None where it does not say.
        median: Whether ``step_s`` is a median over the steps; otherwise a mean.
        losses: As printed.
    """

    steps: int | None = None
    step_s: float | None = None
    median: bool = True
    losses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: Short.
        kind: What was installed or fetched.
        command: Arguments, without and with the planted fault.
        read: What its output says.
        plant: The fault, in words.
        expected: Causes that name it.
        packages: To be installed, as pip names them.
        repository: Of a script: its owner and name.
        paths: Of the repository, those that are needed; none: all of it.
        inside: Whether it runs in its own folder, with the data set linked there: ("data/made", "characters").
        ends: Whether it ends by itself within the benchmark's patience.
        environment: Variables it is run with; the planted ones replace them.
    """

    name: str
    kind: str
    command: Callable[[Places, bool], list[str]]
    read: Callable[[str], Meter]
    plant: str
    expected: tuple[str, ...]
    packages: tuple[str, ...] = ()
    repository: str | None = None
    paths: tuple[str, ...] = ()
    inside: tuple[str, str] | None = None
    ends: bool = True
    environment: Callable[[Places, bool], dict[str, str]] = field(default=lambda places, planted: {})


def _find(pattern: str, text: str) -> list[str]:
    return re.findall(pattern, text)


def _median(values: list[str], scale: float = 1.0) -> float | None:
    return statistics.median(map(float, values[1:])) * scale if len(values) > 2 else None


def _own_lines(text: str) -> Meter:
    """Our quick starts print ``steps N`` and ``loss X``."""
    steps = _find(r"(?m)^steps (\d+)", text)
    return Meter(steps=int(steps[-1]) if steps else None, losses=tuple(_find(r"(?m)^loss (\S+)", text)))


def _nanogpt(places: Places, planted: bool) -> list[str]:
    model = ["--n_layer=1", "--n_head=1", "--n_embd=16", "--batch_size=256", "--max_iters=150"]
    usual = ["--n_layer=2", "--n_head=2", "--n_embd=64", "--batch_size=8", "--max_iters=80"]
    return [
        str(places.bin / "python"),
        "train.py",
        "--dataset=made",
        "--out_dir=out",
        "--device=cpu",
        "--dtype=float32",
        "--compile=False",
        "--eval_iters=1",
        "--eval_interval=1000",
        "--log_interval=1",
        "--block_size=64",
        "--dropout=0.0",
        "--gradient_accumulation_steps=1",
        *(model if planted else usual),
    ]


def _read_nanogpt(text: str) -> Meter:
    times = _find(r"iter \d+: loss \S+, time ([\d.]+)ms", text)
    return Meter(len(times), _median(times, 1e-3), True, tuple(_find(r"iter \d+: loss ([\d.]+)", text)))


def _yolo(places: Places, planted: bool) -> list[str]:
    data = places.data / ("huge_boxes" if planted else "boxes") / "data.yaml"
    options = ["workers=0", "epochs=4"] if planted else ["workers=2", "epochs=3"]
    return [
        str(places.bin / "yolo"),
        *("detect", "train", "model=yolo11n.yaml", f"data={data}", "imgsz=64", "batch=4", "device=cpu"),
        *("plots=False", "val=False", "project={work}/out", *options),
    ]


def _read_yolo(text: str) -> Meter:
    """Its bars leave out what it does between epochs, so that only their counts compare."""
    rounds = [int(count) for count, _ in _find(r"(\d+)/\1 ([\d.]+)it/s [\d.]+s\s*\n", text) if int(count) > 1]
    losses = tuple(_find(r"\d+/\d+ +0G +(\S+ +\S+ +\S+) +\d+ +64: 100%", text))
    return Meter(sum(rounds) or None, losses=losses)


def _imagenet(places: Places, planted: bool) -> list[str]:
    folder = places.data / ("huge" if planted else "pictures")
    options = ["-j", "0", "-b", "4", "--epochs", "2"] if planted else ["-j", "1", "-b", "8", "--epochs", "1"]
    options += ["-a", "shufflenet_v2_x0_5", "-p", "1", "--seed", "1", "--lr", "0.001"]
    return [str(places.bin / "python"), "{source}/imagenet/main.py", *options, str(folder)]


def _read_imagenet(text: str) -> Meter:
    lines = _find(r"Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time +([\d.]+)", text)
    return Meter(len(lines), _median(lines), True, tuple(_find(r"Epoch: .*Loss ([\d.e+-]+)", text)))


def _words(places: Places, planted: bool) -> list[str]:
    sizes = ["--batch_size", "1", "--bptt", "2"] if planted else ["--batch_size", "8", "--bptt", "20"]
    shape = ["--emsize", "64", "--nhid", "64", "--nlayers", "1", "--epochs", "1", "--log-interval", "10"]
    folder = places.data / "words"
    return [str(places.bin / "python"), "{source}/word_language_model/main.py", "--data", str(folder), *sizes, *shape]


def _read_words(text: str) -> Meter:
    times = _find(r"ms/batch +([\d.]+)", text)
    count = _find(r"\d+/ *(\d+) batches", text)
    mean = statistics.fmean(map(float, times[1:])) / 1e3 if len(times) > 1 else None  # the first holds the first step
    steps = int(count[0]) + 1 if count else None  # the last piece is shorter and not in its count
    return Meter(steps, mean, False, tuple(_find(r"loss +([\d.]+) \| ppl", text)))


def _timm(places: Places, planted: bool) -> list[str]:
    folder = places.data / ("huge" if planted else "pictures")
    shape = ["--model", "resnet10t", "--num-classes", "2", "-b", "8", "-j", "1", "--img-size", "64", "--device", "cpu"]
    rest = ["--no-prefetcher", "--log-interval", "1", "--seed", "1", "--lr", "0.01", "--warmup-epochs", "0"]
    epochs = ["--epochs", "3" if planted else "2"]
    return [str(places.bin / "python"), "{source}/train.py", "--data-dir", str(folder), *shape, *rest, *epochs]


def _read_timm(text: str) -> Meter:
    times = _find(r"Train: .*?Time: ([\d.]+)s", text)
    return Meter(len(times), _median(times), True, tuple(_find(r"Train: .*?Loss: (\S+)", text)))


def _sft(places: Places, planted: bool) -> list[str]:
    saving = ["--save_strategy", "steps", "--save_steps", "1"] if planted else ["--save_strategy", "no"]
    return [
        *(str(places.bin / "trl"), "sft", "--model_name_or_path", str(places.data / "texts" / "model")),
        *("--dataset_name", str(places.data / "texts" / "data"), "--output_dir", "out", "--max_steps", "150"),
        *("--per_device_train_batch_size", "4", "--max_length", "32", "--logging_steps", "1", "--report_to", "none"),
        *("--use_cpu", "--bf16", "False", "--gradient_checkpointing", "False", *saving),
    ]


def _read_trainer(text: str) -> Meter:
    rates = _find(r"'train_steps_per_second': '?([\d.]+)", text)
    losses = tuple(_find(r"'loss': '?([\d.e+-]+)", text))
    return Meter(len(losses) or None, 1.0 / float(rates[-1]) if rates else None, False, losses)


def _nnunet(places: Places, planted: bool) -> list[str]:
    return [
        str(places.bin / "nnUNetv2_train"),
        *("1", "2d", "all", "-tr", "nnUNetTrainerDA5" if planted else "nnUNetTrainer_1epoch", "-device", "cpu"),
    ]


def _nnunet_environment(places: Places, planted: bool) -> dict[str, str]:
    return {
        "nnUNet_raw": str(places.data / "scans"),
        "nnUNet_preprocessed": str(places.data / "preprocessed"),
        "nnUNet_results": "{work}/results",
        "nnUNet_n_proc_DA": "0" if planted else "1",
        "nnUNet_compile": "f",
    }


def _anomalib(places: Places, planted: bool) -> list[str]:
    folder = places.data / ("huge_parts" if planted else "parts")
    return [
        *(str(places.bin / "anomalib"), "train", "--model", "Ganomaly", "--model.n_features", "8"),
        *("--data", "anomalib.data.Folder", "--data.name", "made", "--data.root", str(folder)),
        *("--data.normal_dir", "good", "--data.abnormal_dir", "broken", "--data.train_batch_size", "4"),
        *("--data.num_workers", "0" if planted else "1", "--trainer.max_epochs", "6", "--trainer.accelerator", "cpu"),
    ]


def _lightning(places: Places, planted: bool) -> list[str]:
    checks = ["--trainer.val_check_interval", "1"] if planted else ["--trainer.limit_val_batches", "0"]
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.logger", "false"]
    script = str(QUICKSTARTS / "lightning_cli.py")
    return [
        *(str(places.bin / "python"), script, "fit", "--trainer.max_epochs", "3", "--trainer.accelerator", "cpu"),
        *(*checks, *quiet),
    ]


def _fastai(places: Places, planted: bool) -> list[str]:
    folder, workers = ("huge", "0") if planted else ("pictures", "1")
    return [str(places.bin / "python"), str(QUICKSTARTS / "fit_fastai.py"), str(places.data / folder), "64", workers]


def _keras(places: Places, planted: bool) -> list[str]:
    folder = places.data / ("huge" if planted else "pictures") / "train"
    return [str(places.bin / "python"), str(QUICKSTARTS / "fit_keras.py"), str(folder), "128", "log.csv"]


def _read_keras(text: str) -> Meter:
    rounds = _find(r"(\d+)/\1 - .*?- (\d+)ms/step", text)
    losses = _own_lines(text).losses
    if not rounds:
        return Meter(losses=losses)
    steps = sum(int(count) for count, _ in rounds)
    return Meter(steps, sum(int(count) * float(ms) for count, ms in rounds) / steps / 1e3, False, losses)


def _sentences(places: Places, planted: bool) -> list[str]:
    folders = [str(places.data / "words"), "1" if planted else "0", str(places.data / "texts" / "model")]
    return [str(places.bin / "python"), str(QUICKSTARTS / "fit_sentence_transformers.py"), *folders]


def _neuralforecast(places: Places, planted: bool) -> list[str]:
    script = str(QUICKSTARTS / "fit_neuralforecast.py")
    return [str(places.bin / "python"), script, "60", "1" if planted else "1000"]


HUGE = "pictures of 2,400 x 2,400 pixels, fetched without workers"
FETCHING = ("no_workers", "cpu_decode")
PROGRAMS: tuple[Program, ...] = (
    Program(
        "nanoGPT", SCRIPT, _nanogpt, _read_nanogpt, "a batch of 256 cut out in Python for a very small model",
        ("own_input",), (), "karpathy/nanoGPT", inside=("data/made", "characters"),
    ),
    Program(
        "ultralytics", COMMAND, _yolo, _read_yolo, HUGE, FETCHING, ("ultralytics",),
        environment=lambda places, planted: {"YOLO_CONFIG_DIR": "{work}", "YOLO_OFFLINE": "True"},
    ),
    Program(
        "examples/imagenet", SCRIPT, _imagenet, _read_imagenet, HUGE, FETCHING, (), "pytorch/examples", ("imagenet",),
    ),
    Program(
        "examples/word_language_model", SCRIPT, _words, _read_words, "a batch of two words", ("small_batch",), (),
        "pytorch/examples", tuple(f"word_language_model/{name}.py" for name in ("main", "model", "data")),
    ),
    Program(
        "timm train.py", SCRIPT, _timm, _read_timm, "pictures of 2,400 x 2,400 pixels for one worker",
        ("too_few_workers", "cpu_decode"), (), "huggingface/pytorch-image-models",
    ),
    Program(
        "TRL sft", COMMAND, _sft, _read_trainer, "a checkpoint after each step", ("checkpoint",), ("trl",),
    ),
    Program(
        "nnU-Net", COMMAND, _nnunet, lambda text: Meter(), "heavy augmentation in the training process (DA5)",
        ("own_input",), ("nnunetv2",), ends=False, environment=_nnunet_environment,
    ),
    Program(
        "Keras on torch", LIBRARY, _keras, _read_keras, "pictures of 2,400 x 2,400 pixels in a PyDataset",
        ("no_workers", "cpu_decode", "own_input"), ("keras",),
    ),
    Program("fastai", LIBRARY, _fastai, _own_lines, HUGE, FETCHING, ("fastai",)),
    Program(
        "LightningCLI", LIBRARY, _lightning, _own_lines, "validation after each step", ("validation",),
        ("lightning", "jsonargparse[signatures]"),
    ),
    Program(
        "sentence-transformers", LIBRARY, _sentences, _own_lines, "evaluation after each step", ("validation",),
        ("sentence-transformers", "datasets"),
    ),
    Program(
        "neuralforecast", LIBRARY, _neuralforecast, _own_lines, "validation after each step", ("validation",),
        ("neuralforecast",),
    ),
    Program(
        "anomalib", COMMAND, _anomalib, lambda text: Meter(), HUGE, FETCHING, ("anomalib",), ends=False,
    ),
)  # fmt: skip

# What cannot be run as it is: name -> why.
LEFT_OUT = {
    "torchvision's reference classification": "its repository is too large to be brought along here; with --sources it "
    "would run as examples/imagenet does, which has the same loader",
    "accelerate's cv_example and nlp_example": "they download pretrained weights and data sets from a hub; "
    "accelerate's loader runs inside TRL and sentence-transformers here",
    "speechbrain": "it needs torchaudio, whose newest wheel is built for another CUDA version than the torch here, "
    "and refuses to be imported",
    "pytorch-forecasting, gluonts, darts": "not written; neuralforecast stands for time series",
    "MONAI": "not written; nnU-Net stands for medical images",
}


def make_material(folder: Path) -> None:
    """All data sets, once; ``folder`` must not exist."""
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True)
    material.pictures(partial / "pictures", 240, 96)
    material.pictures(partial / "huge", 64, 2400)
    material.inspection(partial / "parts", 32, 96)
    material.inspection(partial / "huge_parts", 24, 2400)
    material.scans(partial / "scans", 6, 48)
    material.characters(partial / "characters")
    material.words(partial / "words", 2000)
    material.conversations(partial / "texts", 400)
    partial.rename(folder)
    # These name their own folder.
    material.detection(folder / "boxes", 96, 96)
    material.detection(folder / "huge_boxes", 32, 2400)
