"""Everything that is patched once torch is imported. Importing this module imports torch."""

import torch.utils.data._utils
import torch.utils.data.dataloader

from . import events
from .hooks import (
    array_reads,
    blocking,
    collectives,
    compiling,
    device,
    fetching,
    frameworks,
    image_loader,
    loaders,
    memory,
    modules,
    native_opens,
    settings,
    sinks,
    training,
    transforms,
    workers,
)
from .live import trial
from .wrap import let_compiler_fold


def install(watch):
    """Patch torch, part by part; parts that this version lacks are skipped.

    Args:
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.

    Returns:
        Parts that could not be patched, with the reason of each.
    """
    data = torch.utils.data
    parts = {
        "live trial": trial.begin_if_planned,
        "loaders": lambda: loaders.install(data.dataloader),
        "fetching": lambda: fetching.install(data._utils.fetch),
        "workers": lambda: workers.install(data._utils.worker),
        "pickling": lambda: workers.time_pickling(events.DESERIALIZE),
        "device": device.install,
        "modules": modules.install,
        "settings": settings.install,
        "memory": memory.install if memory.wanted else lambda: None,
        "training": training.install,
        "blocking": blocking.install,
        "collectives": collectives.install,
        "sinks": lambda: sinks.install(watch),
        "frameworks": lambda: frameworks.install(watch),
        "transforms": lambda: transforms.watch_for(watch),
        "array reads": lambda: array_reads.watch_for(watch),
        "opened files": lambda: native_opens.watch_for(watch),
        "image loader": lambda: watch("flatout.loader.image_loader", image_loader.install),
        "compile": lambda: watch("torch._dynamo.callback", compiling.time_callbacks),
        "compiled functions": lambda: watch("torch._dynamo.convert_frame", compiling.time_functions),
        "is_compiling": lambda: watch("torch._dynamo.allowed_functions", let_compiler_fold),  # up to torch 2.1
    }
    missing = {}
    for name, install_part in parts.items():
        try:
            install_part()
        except Exception as error:
            missing[name] = "%s: %s" % (type(error).__name__, error)
    return missing
