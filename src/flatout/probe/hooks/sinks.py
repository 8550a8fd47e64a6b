"""The outputs of a training: text, metrics and checkpoints."""

import builtins
import functools
import logging
import os

import torch

from .. import events
from ..in_place import NotInstrumented
from ..metric_files import SYNC, is_metric_file
from ..metrics import note, note_all
from ..recorder import REC
from ..wrap import named, patch, time_chosen


def _scalar(self, tag=None, scalar_value=None, *args, **kwargs):
    note(tag, scalar_value)


def mapping(self, data=None, *args, **kwargs):
    """Note the numbers of a call whose first argument maps names to them."""
    note_all(data)


# module -> (attribute path, name on screen): metric writers that are patched when they are imported.
# Each "(path, name)", or "(path, name, f)": f is called with the call's arguments and notes the numbers in them.
METRIC_WRITERS = {
    "torch.utils.tensorboard.writer": [
        ("SummaryWriter.%s" % method, "tensorboard")
        for method in ("add_scalars", "add_image", "add_images", "add_histogram", "add_figure", "flush")
    ]
    + [("SummaryWriter.add_scalar", "tensorboard", _scalar)],
    "tensorboardX.writer": [
        ("SummaryWriter.add_image", "tensorboardX"),
        ("SummaryWriter.add_scalar", "tensorboardX", _scalar),
    ],
    "wandb.sdk.wandb_run": [("Run.log", "wandb", mapping)],
    "mlflow.tracking.client": [
        ("MlflowClient.log_metric", "mlflow", lambda self, run=None, key=None, value=None, *a, **k: note(key, value)),
        ("MlflowClient.log_batch", "mlflow"),
    ],
    "tqdm.std": [("tqdm.display", "tqdm")],
    "flatout.recipes.fit_history": [("FitHistory.publish", "metrics of the recipe", mapping)],
    "comet_ml.experiment": [("BaseExperiment.log_metric", "comet")],
}


def install(watch):
    """Patch printing, logging and saving; ``watch(module, action)`` takes those not imported yet."""
    patch(builtins, "print", events.LOG, named("print"))
    patch(logging.Logger, "callHandlers", events.LOG, named("logging"))
    patch(torch, "save", events.CHECKPOINT, _saved_path)
    for name in ("fsync", "fdatasync"):
        time_chosen(os, name, is_metric_file, events.LOG, named(SYNC))
    for module in ("safetensors.torch",):
        watch(module, lambda m: patch(m, "save_file", events.CHECKPOINT, _second_path))
    watch("torch.distributed.checkpoint", lambda m: patch(m, "save", events.CHECKPOINT))
    for module, targets in METRIC_WRITERS.items():
        watch(module, functools.partial(patch_paths, targets, events.LOG))


def patch_paths(targets, kind, module):
    """Patch dotted attributes of a module as events of one kind, each under its name."""
    failed = None
    for path, text, *numbers in targets:
        owner = module
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if owner is not None and (last in vars(owner) or not parents):
            try:
                patch(owner, last, kind, _noting(text, *numbers) if numbers else named(text))
            except NotInstrumented as error:  # the others can be timed all the same
                failed = error
    if failed is not None:
        raise failed


def _noting(text, numbers):
    """As ``named``, with the numbers of the call."""

    def arg(*args, **kwargs):
        numbers(*args, **kwargs)
        return (REC.names.text(text),)

    return arg


def _saved_path(obj=None, f=None, *args, **kwargs):
    return _path_and_size(f)


def _second_path(tensors=None, filename=None, *args, **kwargs):
    return _path_and_size(filename)


def _path_and_size(target):
    if isinstance(target, (str, os.PathLike)):
        path = os.fspath(target)
        try:
            return REC.names.text(str(path)), os.path.getsize(path)
        except OSError:
            return REC.names.text(str(path)), 0
    name = getattr(target, "name", None)
    try:
        return REC.names.text(str(name or type(target).__name__)), target.tell()
    except (OSError, ValueError, AttributeError):
        return REC.names.text(str(name or type(target).__name__)), 0
