"""A larger cache of unpacked chunks for each HDF5 data set: a chunk that samples share is unpacked once.

HDF5 keeps 1 MiB for a data set (from 2.0 on, 8 MiB) unless it is told otherwise: of larger chunks, each read of a part
unpacks all of it.
"""

import functools

# A prime, and some ten times the chunks that usually fit: chunks that share a slot put each other out.
_SLOTS = 100_003
_KEPT = "_flatout_kept"  # data sets by name, on a group
_KEEPS = "_flatout_keeps"  # whether it keeps them: its file is only read
_MOST_KEPT = 1024


def install(injected, watch):
    """Patch ``h5py.File`` once h5py is imported. Files that are written, or have a cache of their own, stay."""
    watch("h5py._hl.files", functools.partial(_patch, injected))
    watch("h5py._hl.group", _keep_open)


def _patch(injected, module):
    original = module.File.__init__

    @functools.wraps(original)
    def __init__(self, name, mode="r", *args, **kwargs):
        plain = mode == "r" and not args and not {"driver", "rdcc_nbytes", "rdcc_nslots"} & set(kwargs)
        if plain and (isinstance(name, (str, bytes)) or hasattr(name, "__fspath__")):
            kwargs.update(rdcc_nbytes=int(injected.get("chunk_cache_bytes")), rdcc_nslots=_SLOTS)
            injected.done("chunk_cache_bytes")
        original(self, name, mode, *args, **kwargs)

    module.File.__init__ = __init__


def _keep_open(module):
    """Keep the data sets that a file was asked for open as long as the file's object: a cache ends with its data set.

    So each read by ``file["name"][part]`` finds the chunks of the last one.
    """
    original = module.Group.__getitem__

    @functools.wraps(original)
    def __getitem__(self, name):
        found = original(self, name)
        kept = self.__dict__.get(_KEPT)
        if kept is None:
            kept = self.__dict__[_KEPT] = {}
            self.__dict__[_KEEPS] = self.file.mode == "r"
        if self.__dict__[_KEEPS] and hasattr(found, "chunks") and len(kept) < _MOST_KEPT:
            kept.setdefault(name, found)
        return found

    module.Group.__getitem__ = __getitem__
