"""A larger cache of unpacked chunks for each HDF5 data set: a chunk that samples share is unpacked once.

HDF5 keeps 1 MiB for a data set unless it is told otherwise: a larger chunk is unpacked anew by each read of a part.
"""

import functools

# A prime, and some ten times the chunks that usually fit: chunks that share a slot put each other out.
_SLOTS = 100_003


def install(injected, watch):
    """Patch ``h5py.File`` once h5py is imported. Files that are written, or have a cache of their own, stay."""
    watch("h5py._hl.files", functools.partial(_patch, injected))


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
