"""A module by what it computes with: a cheap look whether it is still the same, and a digest of it."""

import hashlib
import itertools

import torch

from ..module_passes import is_hooked
from ..sample_memory import KEY_BYTES
from .object_state import PLAIN, is_of_the_users
from .side_effects import surroundings


def looked_at(module):
    """What shows that a module is as it was, comparable; None: it has hooks, which run when it computes.

    Weights and buffers by their versions, modes and plain attributes of all layers, and the globals and closures that
    the forward pass of the user's layers reads directly. Other objects count by what they are and their length.
    """
    parts = list(module.modules())
    if any(is_hooked(part) for part in parts):
        return None
    found = [_seen(one) for one in itertools.chain(module.parameters(), module.buffers())]
    for part in parts:
        found += [(name, _seen(value)) for name, value in vars(part).items()]
        forward = getattr(type(part), "forward", None)
        if is_of_the_users(type(part)) and hasattr(forward, "__code__"):
            found += map(_seen, surroundings(forward))
    return found


def digest(module):
    """Of all that a module computes with, the same in every process: bytes."""
    made = hashlib.blake2b(digest_size=KEY_BYTES)
    for name, part in module.named_modules():
        plain = sorted((key, repr(value)) for key, value in vars(part).items() if type(value) in PLAIN)
        forward = getattr(type(part), "forward", None)
        around = surroundings(forward) if is_of_the_users(type(part)) and hasattr(forward, "__code__") else ()
        read = [repr(value) for value in around if type(value) in PLAIN]
        made.update(repr((name, type(part).__qualname__, plain, read)).encode())
    for name, one in itertools.chain(module.named_parameters(), module.named_buffers()):
        made.update(repr((name, one.dtype, tuple(one.shape))).encode())
        made.update(one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return made.digest()


def _seen(value):
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return id(value), value._version, value.data_ptr()
    return id(value), len(value) if isinstance(value, (list, dict, set)) else 0
