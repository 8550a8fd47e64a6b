"""Everything that is patched once torch is imported. Importing this module imports torch."""

import torch.utils.data

from . import blocking, device, events, fetching, frameworks, loaders, modules, sinks, training, transforms, workers
from .recorder import REC, now, report_fault

_compile_starts: list[int] = []


def install(watch):
    """Patch torch, part by part: what this version of it lacks is left out.

    Args:
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.

    Returns:
        Parts that could not be patched, with the reason of each.
    """
    data = torch.utils.data
    parts = {
        "loaders": lambda: loaders.install(data.dataloader),
        "fetching": lambda: fetching.install(data._utils.fetch),
        "workers": lambda: workers.install(data._utils.worker),
        "pickling": lambda: workers.time_pickling(events.DESERIALIZE),
        "device": device.install,
        "modules": modules.install,
        "training": training.install,
        "blocking": blocking.install,
        "sinks": lambda: sinks.install(watch),
        "frameworks": lambda: frameworks.install(watch),
        "transforms": lambda: transforms.watch_for(watch),
        "compile": lambda: watch("torch._dynamo.callback", _watch_compile),
    }
    missing = {}
    for name, install_part in parts.items():
        try:
            install_part()
        except Exception as error:
            missing[name] = "%s: %s" % (type(error).__name__, error)
    return missing


def _watch_compile(callback):
    handler = callback.callback_handler
    handler.register_start_callback(lambda *args: _compile_starts.append(now()))
    handler.register_end_callback(_compile_ended)


def _compile_ended(*args):
    if _compile_starts and REC.on:
        try:
            REC.emit(events.COMPILE, _compile_starts.pop(), now(), REC.names.text("torch.compile"))
        except Exception:
            report_fault("compile")
