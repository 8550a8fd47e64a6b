"""How many steps a whole pass over the training data has, by the settings of its loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.measure.training import Training
from flatout.measure.worker_records import loader_settings

# With these a pass has dataset_len / batch_size batches; of any other sampler that is not known.
PLAIN_SAMPLERS = ("RandomSampler", "SequentialSampler")


def declared_steps(training: Training) -> int | None:
    """Steps of a pass by the loader's own settings; None: they do not say."""
    if training.loader is None:
        return None
    return steps_of_pass(loader_settings(training, training.loader), training.processes)


def steps_of_pass(loader: Mapping[str, Any], ranks: int) -> int | None:
    """Batches of a pass of one rank, by the recorded settings of a loader; None: they do not say."""
    if loader.get("batches"):
        return int(loader["batches"])
    if ranks > 1:
        return None  # records without ``batches`` do not say how ranks divide the data
    samples, batch = loader.get("dataset_len"), loader.get("batch_size")
    if not samples or not batch or str(loader.get("sampler")).rpartition(".")[2] not in PLAIN_SAMPLERS:
        return None
    return int(samples // batch if loader.get("drop_last") else -(-samples // batch)) or None
