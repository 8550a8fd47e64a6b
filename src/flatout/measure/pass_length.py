"""How many steps a whole pass over the training data has, by the settings of its loader."""

from __future__ import annotations

from flatout.measure.training import Training
from flatout.measure.worker_records import loader_settings

# With these a pass has dataset_len / batch_size batches; of any other sampler that is not known.
PLAIN_SAMPLERS = ("RandomSampler", "SequentialSampler")


def declared_steps(training: Training) -> int | None:
    """Steps of a pass by the loader's own settings; None: they do not say."""
    if training.loader is None or training.processes > 1:
        return None  # how several ranks divide the data is not recorded
    loader = loader_settings(training, training.loader)
    samples, batch = loader.get("dataset_len"), loader.get("batch_size")
    if not samples or not batch or str(loader.get("sampler")).rpartition(".")[2] not in PLAIN_SAMPLERS:
        return None
    return int(samples // batch if loader.get("drop_last") else -(-samples // batch)) or None
