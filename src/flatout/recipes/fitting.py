"""One fit: a model trained on one training set and scored on one validation set, resumable.

The loop is PyTorch Lightning's.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl
import torch

from flatout.errors import UsageError
from flatout.loader.image_loader import ImageLoader
from flatout.recipes.bookkeeping import Books, TrainingFailed
from flatout.recipes.contract import Fit, ImageData, Policy
from flatout.recipes.datasets import save_classes
from flatout.recipes.derivation import derive
from flatout.recipes.early_stopping import Patience, best_record, share_after_best
from flatout.recipes.interrupting import Interrupt
from flatout.recipes.models import build_model
from flatout.recipes.optimization import scaled_lr
from flatout.recipes.reading import save_recipe
from flatout.recipes.schema import Recipe
from flatout.recipes.task import ImageTask
from flatout.recipes.trainer import LAST, build_trainer


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
    with (
        make_loader(recipe, data, True, rank, world) as train,
        make_loader(recipe, data, False, rank, world, train.choice.workers) as validation,
    ):
        steps = len(train) // training.accumulate
        if rank == 0:
            for line in derive(recipe, data, model, train.choice, lr=lr, how=how, world=world, steps=steps):
                report(line)
            save_recipe(recipe, folder)
            save_classes(folder, data.classes)
        books = Books(train, folder, own, report, len(data.classes))
        books.notes = notes

        def fell_back(line: str) -> None:
            report(line)
            notes.append(line)

        task = ImageTask(recipe, model, len(data.classes), lr, steps, fell_back)
        trainer = build_trainer(recipe, folder, books, show_progress and rank == 0, world)
        interrupt = Interrupt()
        trainer.callbacks.append(interrupt)  # pyright: ignore[reportAttributeAccessIssue]
        with warnings.catch_warnings(), interrupt.listening():
            # Meant for other loaders: ours has no num_workers, and logs by itself.
            warnings.filterwarnings("ignore", module="pytorch_lightning.*")
            warnings.filterwarnings("ignore", category=FutureWarning)
            try:
                trainer.fit(
                    task, train, validation if len(validation) else None, ckpt_path=checkpoint, weights_only=False
                )
            except SystemExit:  # what Lightning makes of Ctrl-C
                raise KeyboardInterrupt from None
        if rank == 0 and (train.bad or validation.bad):
            bad = sorted({(image.where, image.reason) for image in (*train.bad, *validation.bad)})
            (folder / "bad_files.txt").write_text("".join(f"{where}\t{why}\n" for where, why in bad), "utf-8")
            books.notes.append(f"{len(bad)} image(s) could not be decoded and were replaced: bad_files.txt lists them")
    return _result(recipe, folder, books)


def make_loader(
    recipe: Recipe, data: ImageData, training: bool, rank: int = 0, world: int = 1, workers: int | None = None
) -> ImageLoader:
    """The training or validation loader of a recipe; ``workers``: as many, without measuring again."""
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
        workers=workers or images.workers,
        prefetch_batches=images.prefetch_batches,
        bad_files=recipe.data.bad_files,
        pin_memory=torch.cuda.is_available(),
    )


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
