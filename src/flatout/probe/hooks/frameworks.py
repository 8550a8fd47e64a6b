"""Validation, checkpoints and logging of training frameworks: patched when the frameworks are imported."""

import functools

from .. import events
from .sinks import mapping, patch_paths


def _lightning(package):
    return {
        package + ".loops.evaluation_loop": (events.VALIDATION, [("_EvaluationLoop.run", "Lightning evaluation loop")]),
        package + ".trainer.trainer": (events.CHECKPOINT, [("Trainer.save_checkpoint", "Lightning checkpoint")]),
        package + ".trainer.connectors.logger_connector.logger_connector": (
            events.LOG,
            [
                ("_LoggerConnector.log_metrics", "Lightning loggers", mapping),
                ("_LoggerConnector.update_train_step_metrics", "Lightning loggers"),
            ],
        ),
        package + ".callbacks.progress.tqdm_progress": (
            events.LOG,
            [("TQDMProgressBar.on_train_batch_end", "Lightning progress bar")],
        ),
        package + ".callbacks.progress.rich_progress": (
            events.LOG,
            [("RichProgressBar.on_train_batch_end", "Lightning progress bar")],
        ),
    }


def _fabric(package):
    """Its CSV files get plain numbers, which the connector above has as tensors on their device."""
    return {
        package + ".loggers.csv_logs": (
            events.LOG,
            [("_ExperimentWriter.log_metrics", "Lightning CSV logger", mapping)],
        )
    }


TARGETS = {}
TARGETS.update(_lightning("pytorch_lightning"))
TARGETS.update(_lightning("lightning.pytorch"))
TARGETS.update(_fabric("lightning_fabric"))
TARGETS.update(_fabric("lightning.fabric"))


def install(watch):
    """Watch for the frameworks' modules."""
    for module, (kind, targets) in TARGETS.items():
        watch(module, functools.partial(patch_paths, targets, kind))
    watch("transformers.trainer", _transformers)


def _transformers(module):
    patch_paths([("Trainer.evaluate", "Hugging Face evaluate")], events.VALIDATION, module)
    patch_paths([("Trainer._save_checkpoint", "Hugging Face checkpoint")], events.CHECKPOINT, module)
    patch_paths([("Trainer.log", "Hugging Face log", mapping)], events.LOG, module)
