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

from flatout.errors import TrainingFailed, UsageError
from flatout.formats.training_folder import SUMMARY_FILE
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.checkpoints import LAST, best_path, kept_checkpoints, remove_surpassed
from flatout.recipes.early_stopping import Patience, best_record, share_after_best
from flatout.recipes.fit_history import FitHistory
from flatout.recipes.interfaces import EpochRecord, Fit, Policy, TrainingData
from flatout.recipes.interrupting import Interrupt
from flatout.recipes.optimization import scaled_lr
from flatout.recipes.pipeline import pipeline_of
from flatout.recipes.ranks import this_process
from flatout.recipes.reading import save_recipe
from flatout.recipes.resolved import derive, late_average
from flatout.recipes.resuming import Start, find_start, origin_of
from flatout.recipes.schema import Recipe
from flatout.recipes.trainer import build_trainer
from flatout.units import percent


@dataclass
class _Attempt:
    """The parts of a fit that do not depend on the batch size."""

    recipe: AnyRecipe  # as requested
    data: TrainingData
    folder: Path
    policies: Sequence[Policy]
    report: Callable[[str], None]
    show_progress: bool
    before_training: Callable[[], None]
    notes: list[str]


def fit(
    recipe: AnyRecipe,
    data: TrainingData,
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
        data: the images or volumes.
        folder: checkpoints, metrics, the resolved recipe and the class names go there.
        policies: rules that may end the fit early, in addition to the recipe's own.
        resume: continue from the last intact checkpoint of the folder.
        allowed: keys that may differ from the recipe that the checkpoint was trained by; ``data``: the data.
        report: called with each progress message.
        show_progress: a moving line on standard error.
        before_training: called when there is something to train, perhaps several times.

    Raises:
        UsageError: the recipe cannot be run with this data or model, or the folder holds a training.
        TrainingFailed: the loss became infinite or NaN, or a checkpoint could not be written.
    """
    recipe, _ = pipeline_of(recipe).resolve(recipe)
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
            if isinstance(recipe, Recipe) and recipe.training.mixes:
                smaller -= smaller % 2  # pairs are mixed
            if not recipe.training.oom_fallback or smaller < 1:
                raise TrainingFailed(
                    f"out of device memory at batch size {size}: "
                    f"give a smaller training.batch_size, or set {_section(recipe)}.gradient_checkpointing"
                ) from None
            note = f"out of device memory at batch size {size}: going on with {smaller}"
            report(f"{note} (the learning rate follows)")
            attempt.notes.append(note)
            size = smaller
            start = find_start(folder, recipe, data, allowed, report, size) if kept_checkpoints(folder) else None
            torch.cuda.empty_cache()


def _section(recipe: AnyRecipe) -> str:
    return "model" if isinstance(recipe, Recipe) else "network"


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
    pipeline = pipeline_of(recipe)
    ranks = this_process()
    rank, world, _ = ranks
    global_batch = training.batch_size * world * training.accumulate
    if data.train_count < training.batch_size * world:
        raise UsageError(
            f"training.batch_size: {training.batch_size} × {world} process{'' if world == 1 else 'es'} "
            f"is more than the {data.train_count} training {data.things}"
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
    model = pipeline.build_model(recipe, data, weights=start is None)
    lr, how = scaled_lr(recipe.optimizer, global_batch)
    with pipeline.loaders(recipe, data, ranks) as (train, validation):
        steps = -(-len(train) // training.accumulate)
        if rank == 0:
            about, memory = pipeline.describe(recipe, data, train)
            for line in derive(recipe, data, model, about, memory, lr=lr, how=how, world=world, steps=steps):
                report(line)
            save_recipe(recipe, folder)
            pipeline.save_beside(data, folder)
        origin = {**origin_of(attempt.recipe, data), "batch_size": batch_size}
        history = FitHistory(
            train, folder, own, report, lambda records: pipeline.warning(recipe, data, records), origin
        )
        history.notes = attempt.notes
        late = late_average(recipe, steps)
        if late is not None and late not in history.notes:
            if rank == 0:
                report(late)
            history.notes.append(late)

        def fell_back(line: str) -> None:
            report(line)
            history.notes.append(line)

        task = pipeline.make_task(recipe, model, data, lr, fell_back)
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
        if rank == 0:
            history.notes += pipeline.trained(folder, train, validation)
    return _result(recipe, folder, history.records, history.stopped, history.notes)


def _result(
    recipe: AnyRecipe, folder: Path, records: Sequence[EpochRecord], stopped: str | None, notes: Sequence[str]
) -> Fit:
    metric = recipe.checkpoints.metric
    if this_process().is_first:
        remove_surpassed(folder, records, metric, recipe.checkpoints.keep)
    best = best_record(records, metric)
    path = best_path(folder, best.epoch) if best else None
    said = list(notes)
    after = share_after_best(records, metric)
    if stopped and best is not None and after is not None:
        said.append(f"the best epoch was {best.epoch + 1}; {percent(after)} of the time was spent after it")
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
