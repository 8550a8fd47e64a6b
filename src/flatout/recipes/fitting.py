"""One fit: a model trained on one training set and scored on one validation set, resumable.

The loop is PyTorch Lightning's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch

from flatout.atomic_file import write_atomically
from flatout.errors import TrainingFailed, UsageError
from flatout.formats.training_folder import SUMMARY_FILE
from flatout.loader.augment import Augmentation
from flatout.loader.image_loader import ImageLoader
from flatout.recipes.checkpoints import LAST, best_path, kept_checkpoints
from flatout.recipes.data_config import resolve_images
from flatout.recipes.datasets import save_classes
from flatout.recipes.early_stopping import Patience, best_record, share_after_best
from flatout.recipes.fit_history import FitHistory
from flatout.recipes.interfaces import EpochRecord, Fit, ImageData, Policy
from flatout.recipes.interrupting import Interrupt
from flatout.recipes.models import build_model, without_weights
from flatout.recipes.optimization import scaled_lr
from flatout.recipes.ranks import this_process
from flatout.recipes.reading import save_recipe
from flatout.recipes.resolved import derive
from flatout.recipes.resuming import Start, find_start, origin_of
from flatout.recipes.schema import Recipe
from flatout.recipes.task import ImageTask
from flatout.recipes.trainer import build_trainer
from flatout.terminal_text import one_line
from flatout.units import counted, percent

BAD_FILES = "bad_files.txt"


@dataclass
class _Attempt:
    """The parts of a fit that do not depend on the batch size."""

    recipe: Recipe  # as requested
    data: ImageData
    folder: Path
    policies: Sequence[Policy]
    report: Callable[[str], None]
    show_progress: bool
    before_training: Callable[[], None]
    notes: list[str]


def fit(
    recipe: Recipe,
    data: ImageData,
    folder: Path,
    *,
    policies: Sequence[Policy] = (),
    resume: bool = False,
    allowed: Collection[str] = (),
    report: Callable[[str], None] = print,
    show_progress: bool = True,
    before_training: Callable[[], None] = lambda: None,
) -> Fit:
    """Train.

    Args:
        recipe: what to train and how.
        data: the images.
        folder: checkpoints, metrics, the resolved recipe and the class names go there.
        policies: rules that may end the fit early, in addition to the recipe's own.
        resume: continue from the last intact checkpoint of the folder.
        allowed: keys that may differ from the recipe that the checkpoint was trained by; ``data``: the images.
        report: called with each progress message.
        show_progress: a moving line on standard error.
        before_training: called when there is something to train, perhaps several times.

    Raises:
        UsageError: the recipe cannot be run with this data or model, or the folder holds a training.
        TrainingFailed: the loss became infinite or NaN, or a checkpoint could not be written.
    """
    recipe, _ = resolve_images(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    if not resume and kept_checkpoints(folder):
        raise UsageError(f"{folder}: holds a training already: go on with --resume, or give another --output")
    start = find_start(folder, recipe, data, allowed, report) if resume else None
    attempt = _Attempt(recipe, data, folder, policies, report, show_progress, before_training, [])
    size = start.batch_size if start else recipe.training.batch_size
    while True:
        try:
            return _fit_once(attempt, start, size)
        except torch.cuda.OutOfMemoryError:
            smaller = smaller_batch(size)
            if recipe.training.mixup or recipe.training.cutmix:
                smaller -= smaller % 2  # pairs are mixed
            if not recipe.training.oom_fallback or smaller < 1:
                raise TrainingFailed(
                    f"out of device memory at batch size {size}: "
                    "give a smaller training.batch_size, or set model.gradient_checkpointing"
                ) from None
            note = f"out of device memory at batch size {size}: going on with {smaller}"
            report(f"{note} (the learning rate follows)")
            attempt.notes.append(note)
            size = smaller
            start = find_start(folder, recipe, data, allowed, report, size) if kept_checkpoints(folder) else None
            torch.cuda.empty_cache()


def smaller_batch(size: int) -> int:
    """The next smaller batch: 512, 384, 256, 192, 128 …; 0 below 1."""
    power = 1 << (size.bit_length() - 1)
    if size == power:
        return power * 3 // 4 if power >= 4 else power // 2
    return power if size <= power * 3 // 2 else power * 3 // 2


def _fit_once(attempt: _Attempt, start: Start | None, batch_size: int) -> Fit:
    data, folder, report = attempt.data, attempt.folder, attempt.report
    training = attempt.recipe.training.model_copy(update={"batch_size": batch_size})
    recipe = attempt.recipe.model_copy(update={"training": training})
    rank, world, _ = this_process()
    global_batch = training.batch_size * world * training.accumulate
    if len(data.train_indices) < training.batch_size * world:
        raise UsageError(
            f"training.batch_size: {training.batch_size} × {world} process{'' if world == 1 else 'es'} "
            f"is more than the {len(data.train_indices)} training images"
        )
    own: list[Policy] = list(attempt.policies)
    if training.early_stopping:
        stopping = training.early_stopping
        own.append(Patience(recipe.checkpoints.metric, stopping.patience, stopping.min_delta, training.epochs))
    records = start.records if start else ()
    over = [policy.resumed(records) for policy in own]  # each attempt continues from what was trained
    why = next((reason for reason in over if reason), None)
    if start is not None and (why or len(records) >= training.epochs):
        report(f"{folder}: trained already: {why or f'all {training.epochs} epochs'}")
        return _result(recipe, folder, records, why, attempt.notes)
    attempt.before_training()
    pl.seed_everything(training.seed, verbose=False)
    model = build_model(recipe if start is None else without_weights(recipe), len(data.classes))
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)
    lr, how = scaled_lr(recipe.optimizer, global_batch)
    with (
        make_loader(recipe, data, True, rank, world) as train,
        make_loader(recipe, data, False, rank, world, train.choice.workers) as validation,
    ):
        steps = -(-len(train) // training.accumulate)
        if rank == 0:
            for line in derive(recipe, data, model, train.choice, lr=lr, how=how, world=world, steps=steps):
                report(line)
            save_recipe(recipe, folder)
            save_classes(folder, data.classes)
        origin = {**origin_of(attempt.recipe, data), "batch_size": batch_size}
        history = FitHistory(train, folder, own, report, len(data.classes), origin)
        history.notes = attempt.notes

        def fell_back(line: str) -> None:
            report(line)
            history.notes.append(line)

        task = ImageTask(recipe, model, len(data.classes), lr, fell_back)
        trainer = build_trainer(recipe, folder, history, attempt.show_progress and rank == 0, world)
        interrupt = Interrupt()
        trainer.callbacks.append(interrupt)  # pyright: ignore[reportAttributeAccessIssue]
        with warnings.catch_warnings(), interrupt.listening():
            # These warnings are for other loaders: ours has no num_workers, and logs by itself.
            warnings.filterwarnings("ignore", module="pytorch_lightning.*")
            warnings.filterwarnings("ignore", category=FutureWarning)
            (folder / SUMMARY_FILE).unlink(missing_ok=True)  # its presence means that the fit has ended
            try:
                trainer.fit(
                    task,
                    train,
                    validation if len(validation) else None,
                    ckpt_path=start.checkpoint if start else None,
                    weights_only=True,
                )
            except SystemExit:  # Lightning's response to Ctrl-C
                raise KeyboardInterrupt from None
        if rank == 0 and (train.bad or validation.bad):
            bad = sorted({(image.where, image.reason) for image in (*train.bad, *validation.bad)})
            write_atomically(folder / BAD_FILES, "".join(f"{one_line(at)}\t{one_line(why)}\n" for at, why in bad))
            history.notes.append(
                f"{counted(len(bad), 'image')} could not be decoded and were replaced: bad_files.txt lists them"
            )
    return _result(recipe, folder, history.records, history.stopped, history.notes)


def make_loader(
    recipe: Recipe, data: ImageData, training: bool, rank: int = 0, world: int = 1, workers: int | None = None
) -> ImageLoader:
    """The training or validation loader of a recipe; ``workers``: this many, without a new measurement."""
    images = recipe.images
    assert images.size is not None and images.validation_crop is not None, "resolve_images comes first"
    source = data.train if training or data.validation is None else data.validation
    return ImageLoader(
        source,
        data.train_indices if training else data.validation_indices,
        size=images.size,
        batch_size=(not training and recipe.training.validation_batch_size) or recipe.training.batch_size,
        training=training,
        seed=recipe.training.seed,
        rank=rank,
        world_size=world,
        crop_scale=images.crop_scale,
        crop_ratio=images.crop_ratio,
        validation_crop=images.validation_crop,
        squash=images.crop_mode == "squash",
        flip=images.flip,
        augmentation=Augmentation(
            vertical_flip=images.vertical_flip,
            policy=images.policy,
            magnitude=images.policy_magnitude,
            operations=images.policy_operations,
            jitter=images.colour_jitter,
            jitter_probability=images.colour_jitter_probability,
            grey=images.grey,
            blur=images.blur,
        ),
        interpolation=images.interpolation or "bilinear",
        repeats=images.repeats,
        decoder=images.decoder,
        scaled_decode=images.scaled_decode,
        backend=images.backend if training else "threads",
        workers=workers or images.workers,
        prefetch_batches=images.prefetch_batches,
        bad_files=recipe.data.bad_files,
        pin_memory=torch.cuda.is_available(),
    )


def _result(
    recipe: Recipe, folder: Path, records: Sequence[EpochRecord], stopped: str | None, notes: Sequence[str]
) -> Fit:
    metric = recipe.checkpoints.metric
    best = best_record(records, metric)
    path = best_path(folder, best.epoch) if best else None
    said = list(notes)
    after = share_after_best(records, metric)
    if stopped and best is not None and after is not None:
        said.append(f"the best epoch was {best.epoch}; {percent(after)} of the time was spent after it")
    return Fit(
        folder=folder,
        records=tuple(records),
        best=path if path is not None and path.is_file() else None,
        last=folder / LAST if (folder / LAST).is_file() else None,
        best_epoch=best.epoch if best else None,
        stopped=stopped,
        metrics=dict((best or records[-1]).metrics) if records else {},
        notes=tuple(said),
    )
