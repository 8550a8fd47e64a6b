"""One fit: a model trained on one training set and scored on one validation set, resumable.

The loop is PyTorch Lightning's.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EMAWeightAveraging, ModelCheckpoint

from flatout.errors import UsageError
from flatout.loader.image_loader import ImageLoader
from flatout.recipes.bookkeeping import Books, TrainingFailed
from flatout.recipes.contract import Fit, ImageData, Policy
from flatout.recipes.datasets import save_classes
from flatout.recipes.early_stopping import Patience, best_record, share_after_best
from flatout.recipes.models import build_model
from flatout.recipes.optimization import scaled_lr
from flatout.recipes.progress import ProgressLine
from flatout.recipes.reading import save_recipe
from flatout.recipes.schema import Recipe
from flatout.recipes.task import ImageTask

LAST = "last.ckpt"


def fit(
    recipe: Recipe,
    data: ImageData,
    folder: Path,
    *,
    policies: Sequence[Policy] = (),
    resume: bool = False,
    report: Callable[[str], None] = print,
    show_progress: bool = True,
) -> Fit:
    """Train.

    Args:
        recipe: what to train and how.
        data: the images.
        folder: checkpoints, metrics, the resolved recipe and the class names go there.
        policies: rules that may end the fit early, beside the recipe's own.
        resume: go on from ``last.ckpt`` of the folder.
        report: told what is worth a line.
        show_progress: a moving line on standard error.

    Raises:
        UsageError: what the recipe asks for cannot be done with this data or model.
        TrainingFailed: the loss became infinite or no number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    last = folder / LAST
    if resume and not last.is_file():
        raise UsageError(f"--resume: {last}: no such checkpoint: start without --resume")
    notes: list[str] = []
    while True:
        try:
            return _fit_once(recipe, data, folder, policies, resume, report, show_progress, notes)
        except torch.cuda.OutOfMemoryError:
            smaller = smaller_batch(recipe.training.batch_size)
            if not recipe.training.oom_fallback or smaller < 1:
                raise TrainingFailed(
                    f"out of device memory at batch size {recipe.training.batch_size}: "
                    "give a smaller training.batch_size, or training.gradient_checkpointing"
                ) from None
            note = f"out of device memory at batch size {recipe.training.batch_size}: going on with {smaller}"
            report(f"{note} (the learning rate follows)")
            notes.append(note)
            recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"batch_size": smaller})})
            resume = last.is_file()
            torch.cuda.empty_cache()


def smaller_batch(size: int) -> int:
    """The next smaller batch: 512, 384, 256, 192, 128 …; 0 below 1."""
    power = 1 << (size.bit_length() - 1)
    if size == power:
        return power * 3 // 4 if power >= 4 else power // 2
    return power if size <= power * 3 // 2 else power * 3 // 2


def _fit_once(
    recipe: Recipe,
    data: ImageData,
    folder: Path,
    policies: Sequence[Policy],
    resume: bool,
    report: Callable[[str], None],
    show_progress: bool,
    notes: list[str],
) -> Fit:
    training = recipe.training
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    global_batch = training.batch_size * world * training.accumulate
    if len(data.train_indices) < training.batch_size * world:
        raise UsageError(
            f"training.batch_size: {training.batch_size} × {world} process(es) is more than the "
            f"{len(data.train_indices)} training images"
        )
    checkpoint = _checked(folder / LAST, recipe, data) if resume else None  # before its recipe is overwritten
    pl.seed_everything(training.seed, verbose=False)
    model = build_model(recipe, len(data.classes))
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)
    lr, how = scaled_lr(recipe.optimizer, global_batch)
    own: list[Policy] = list(policies)
    if training.early_stopping:
        stopping = training.early_stopping
        own.append(Patience(recipe.checkpoints.metric, stopping.patience, stopping.min_delta, training.epochs))
    with make_loader(recipe, data, True, rank, world) as train, _validation(recipe, data, rank, world) as validation:
        steps = len(train) // training.accumulate
        if rank == 0:
            report(f"images: {len(data.train_indices):,} for training, {len(data.validation_indices):,} for validation")
            report(f"loader: {train.choice.reason}")
            report(f"learning rate: {lr:g} = {how}; {steps:,} steps an epoch of {global_batch} images")
            save_recipe(recipe, folder)
            save_classes(folder, data.classes)
        task = ImageTask(recipe, model, len(data.classes), lr, steps)
        if training.compile != "off":
            task.model.compile(mode=None if training.compile == "default" else training.compile)
        books = Books(train, folder, own, report, len(data.classes))
        books.notes = notes
        trainer = _trainer(recipe, folder, books, show_progress and rank == 0, world)
        with warnings.catch_warnings():
            # Meant for other loaders: ours has no num_workers, and logs by itself.
            warnings.filterwarnings("ignore", module="pytorch_lightning.*")
            warnings.filterwarnings("ignore", category=FutureWarning)
            trainer.fit(task, train, validation if len(validation) else None, ckpt_path=checkpoint, weights_only=False)
        if trainer.interrupted:
            raise KeyboardInterrupt
        if rank == 0 and (train.bad or validation.bad):
            bad = sorted({(image.where, image.reason) for image in (*train.bad, *validation.bad)})
            (folder / "bad_files.txt").write_text("".join(f"{where}\t{why}\n" for where, why in bad), "utf-8")
            books.notes.append(f"{len(bad)} image(s) could not be decoded and were replaced: bad_files.txt lists them")
    return _result(recipe, folder, books)


def make_loader(recipe: Recipe, data: ImageData, training: bool, rank: int = 0, world: int = 1) -> ImageLoader:
    """The training or validation loader of a recipe."""
    images = recipe.images
    source = data.train if training or data.validation is None else data.validation
    return ImageLoader(
        source,
        data.train_indices if training else data.validation_indices,
        size=images.size,
        batch_size=recipe.training.batch_size,
        training=training,
        seed=recipe.training.seed,
        rank=rank,
        world_size=world,
        crop_scale=images.crop_scale,
        crop_ratio=images.crop_ratio,
        validation_crop=images.validation_crop,
        flip=images.flip,
        decoder=images.decoder,
        scaled_decode=images.scaled_decode,
        backend=images.backend if training else "threads",
        workers=images.workers,
        prefetch_batches=images.prefetch_batches,
        bad_files=recipe.data.bad_files,
        pin_memory=torch.cuda.is_available(),
    )


def _validation(recipe: Recipe, data: ImageData, rank: int, world: int) -> ImageLoader:
    return make_loader(recipe, data, False, rank, world)


def _trainer(recipe: Recipe, folder: Path, books: Books, show_progress: bool, world: int) -> pl.Trainer:
    training, kept = recipe.training, recipe.checkpoints
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    callbacks: list[Callback] = [books]
    if training.ema_decay:
        callbacks.append(EMAWeightAveraging(decay=training.ema_decay))
    if show_progress:
        callbacks.append(ProgressLine(recipe))
    callbacks.append(
        ModelCheckpoint(
            folder,
            filename="best-{epoch:03d}",
            monitor=kept.metric,
            mode="min" if kept.metric.endswith("loss") else "max",
            save_top_k=kept.keep,
            save_last=False,
            save_on_train_epoch_end=True,
            auto_insert_metric_name=False,
        )
    )
    callbacks.append(Last(books, folder / LAST))
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high" if training.tf32 else "highest")
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision=_precision(training.precision),
        max_epochs=training.epochs,
        accumulate_grad_batches=training.accumulate,
        gradient_clip_val=training.clip_gradients or None,
        callbacks=callbacks,
        logger=_loggers(recipe, folder),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )


class Last(Callback):  # type: ignore[misc]
    """Writes ``last.ckpt`` after each epoch; Lightning replaces it at once."""

    def __init__(self, books: Books, path: Path) -> None:
        """Write to ``path``."""
        self._books, self._path = books, path

    def on_train_epoch_end(self, trainer: pl.Trainer, task: ImageTask) -> None:
        """Save the epoch."""
        self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        try:
            trainer.save_checkpoint(self._path)
        except OSError as error:
            raise TrainingFailed(
                f"{self._path}: {error.strerror or error}: the checkpoint could not be written; earlier ones are whole"
            ) from None
        self._books.last_saved = self._path


def _loggers(recipe: Recipe, folder: Path) -> Any:
    wanted = recipe.logging
    found: list[Any] = []
    from pytorch_lightning import loggers

    try:
        if wanted.tensorboard:
            found.append(loggers.TensorBoardLogger(folder, name="tensorboard"))
        if wanted.wandb != "off":
            found.append(
                loggers.WandbLogger(
                    name=wanted.wandb_name or folder.name,
                    project=wanted.wandb_project,
                    save_dir=folder,
                    offline=wanted.wandb == "offline",
                )
            )
        if wanted.mlflow:
            found.append(loggers.MLFlowLogger(tracking_uri=wanted.mlflow, run_name=folder.name))
    except ModuleNotFoundError as error:
        raise UsageError(f"logging: {error.name or error} is not installed: install it, or switch it off") from None
    return found or False


def _precision(wanted: str) -> Any:
    if wanted == "auto":
        if not torch.cuda.is_available():
            return "32-true"
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"
    return {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}[wanted]


def _checked(path: Path, recipe: Recipe, data: ImageData) -> Path:
    """A checkpoint of the same model and classes.

    Raises:
        UsageError: it is of another one.
    """
    from flatout.recipes.datasets import CLASSES_FILE, load_classes
    from flatout.recipes.reading import FILE_NAME, read_recipe

    before = read_recipe(str(path.parent / FILE_NAME))
    if before.model.name != recipe.model.name:
        raise UsageError(f"{path}: a checkpoint of {before.model.name}, not of {recipe.model.name}")
    if load_classes(path.parent / CLASSES_FILE) != data.classes:
        raise UsageError(f"{path}: a checkpoint of other classes than the data has now")
    return path


def _result(recipe: Recipe, folder: Path, books: Books) -> Fit:
    metric = recipe.checkpoints.metric
    best = best_record(books.records, metric)
    path = folder / f"best-{best.epoch:03d}.ckpt" if best else None
    notes = list(books.notes)
    after = share_after_best(books.records, metric)
    if books.stopped and best is not None and after is not None:
        notes.append(f"the best epoch was {best.epoch}; {100 * after:.0f} % of the time was spent after it")
    return Fit(
        folder=folder,
        records=tuple(books.records),
        best=path if path is not None and path.is_file() else None,
        last=folder / LAST if (folder / LAST).is_file() else None,
        best_epoch=best.epoch if best else None,
        stopped=books.stopped,
        metrics=dict((best or books.records[-1]).metrics) if books.records else {},
        notes=tuple(notes),
    )
