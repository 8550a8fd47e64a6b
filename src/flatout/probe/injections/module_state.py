"""A module by what it computes with: a look whether it is still the same, and a digest of it."""

import hashlib
import itertools
import os
from typing import Any

import torch

from ..inspection.gradients import sums_of
from ..module_passes import is_hooked
from ..sample_memory import KEY_BYTES
from .object_state import PLAIN, add_part, is_of_the_users, look
from .reached_code import ReachedCode

# What every module has: its weights and parts are looked at by themselves. A wrapper around ``forward`` runs anyway.
_OTHERS = (vars(torch.nn.Module()).keys() - {"training"}) | {"forward"}


class Unknown(Exception):
    """What a module computes with is not known; the text says why."""


class ModuleState:
    """One module."""

    def __init__(self, module):
        self._module = module
        self._codes = {}  # class of the user's -> what the code of its forward pass reaches

    def look(self):
        """What shows that it is as it was, comparable, and objects that have to be kept for that.

        Weights and buffers by their versions and sums, since what ``data`` writes has no version; modes and attributes
        of all layers; of the user's layers the globals, closures and environment variables that their code reads.

        Raises:
            Unknown: it has hooks, or the code of the user's layers reads what no name shows.
        """
        parts = list(self._module.modules())
        if any(map(is_hooked, parts)):
            raise Unknown("it has hooks, which run when it computes")
        tensors = self.held()
        looked = [(id(one), one._version, one.data_ptr()) for one in tensors]
        looked.append(sums_of(tensors))
        kept: Any = []
        for part in parts:
            for name, value in _attributes(part):
                looked.append(name)
                look(value, looked, kept)
            for value in self._read_by(part):
                look(value, looked, kept)
        return looked, kept

    def held(self):
        """Its weights and buffers."""
        return [*self._module.parameters(), *self._module.buffers()]

    def digest(self):
        """Of all that it computes with, the same in every process: bytes.

        Raises:
            Exception: what code of the user's reads has no digest.
        """
        made = hashlib.blake2b(digest_size=KEY_BYTES)
        for path, part in self._module.named_modules():
            made.update(repr((path, type(part).__qualname__)).encode())
            for name, value in sorted(_attributes(part)):
                made.update(("%s;" % name).encode())
                if type(value) in PLAIN or is_of_the_users(type(part)):
                    add_part(made, value)
                else:
                    _add_of_library(made, value)
            for value in self._read_by(part):
                add_part(made, value)
        for name, one in itertools.chain(self._module.named_parameters(), self._module.named_buffers()):
            made.update(repr((name, one.dtype, tuple(one.shape))).encode())
            made.update(one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return made.digest()

    def _read_by(self, part):
        """Values that the code of a layer of the user's reads besides its attributes."""
        kind = type(part)
        forward = getattr(kind, "forward", None)
        if not is_of_the_users(kind) or not hasattr(forward, "__code__"):
            return
        if kind not in self._codes:
            self._codes[kind] = ReachedCode(forward, kind, [value for _, value in _attributes(part)])
        code = self._codes[kind]
        if code.unknown:
            raise Unknown("what it reads is not known: %s" % code.unknown)
        for namespace, name in code.values:
            yield namespace.get(name)
        for cell in code.cells:
            yield cell.cell_contents
        if code.environment:
            yield repr(sorted(os.environ.items()))


def _attributes(part):
    return [(name, value) for name, value in vars(part).items() if name not in _OTHERS]


def _add_of_library(made, value):
    try:
        add_part(made, value)
    except Exception:  # no digest: a change in it shows in this process
        made.update(type(value).__qualname__.encode())
