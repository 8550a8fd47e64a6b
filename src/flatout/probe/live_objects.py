"""Modules and optimizers of the training, found among all objects that Python's garbage collector knows.

There may be a million: nothing is done for each of them in Python, which a debugger would trace for seconds.
"""

import itertools

import torch

from .collected_objects import collected_objects


def modules():
    """All modules but compiled ones, whose hooks and parameters are part of what was compiled."""
    return _of_kinds(lambda kind: issubclass(kind, torch.nn.Module) and not issubclass(kind, torch.jit.ScriptModule))


def outermost():
    """The modules that are part of no other one."""
    found = modules()
    inner = {id(part) for module in found for part in (vars(module).get("_modules") or {}).values()}
    return [module for module in found if id(module) not in inner]


def optimizers():
    """All of torch's optimizers."""
    return _of_kinds(lambda kind: issubclass(kind, torch.optim.Optimizer))


def _of_kinds(chosen):
    objects = collected_objects()
    try:
        # Not by id(): each call of it is an audit event, for which flatout has a hook.
        wanted = {kind for kind in set(map(type, objects)) if chosen(kind)}
        return list(itertools.compress(objects, map(wanted.__contains__, map(type, objects))))
    except TypeError:  # a metaclass has made types that cannot be hashed
        return [one for one in objects if chosen(type(one))]
