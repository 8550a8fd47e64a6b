"""Arrays that a data set reads whole from files become memory maps: what a sample does not use is not read.

Only while a batch is fetched. A map is private (copy on write), so a sample may change its values, as before. What
outlives its batch becomes ordinary memory at the end, and so does a map whose file is about to be written.
"""

import contextlib
import functools
import os
import struct
import sys
import threading

import torch
from torch.utils.data._utils import fetch as fetchers

from ..unbound import Unbound
from .private_memory import is_write, turn_private
from .rebinding import rebind

LEAST_BYTES = 1 << 20  # reading a smaller file takes about as long as mapping it
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member of a zip archive: lengths of its name and of its extra field
MOST_IN_VAIN = 20  # files that could not be mapped, before a reader tries no more
_MARK = "_flatout_maps"

_state = threading.local()
_live: "set[str]" = set()  # real paths of the files that batches in preparation have maps of


def install(injected, watch):
    """Patch the readers once they are imported."""
    done = functools.partial(injected.done, "mapped_arrays")
    for fetcher in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        setattr(fetcher, "fetch", _fetching(fetcher.fetch))  # noqa: B010
    for module, name, mapped in (
        ("numpy", "load", _npy),
        ("numpy.lib._npyio_impl", "NpzFile.__getitem__", _npz),
        ("numpy.lib.npyio", "NpzFile.__getitem__", _npz),
        ("tifffile", "imread", _tif),
        ("h5py._hl.dataset", "Dataset.__getitem__", _hdf5),
    ):
        watch(module, functools.partial(_patch, name, mapped, done))
    torch.load = Unbound(_reading(torch.load, _pt, done), "torch")
    # Libraries of C open files themselves, which raises no event.
    torch.save = Unbound(_writing(torch.save), "torch")
    watch("h5py._hl.files", _watch_hdf5)
    sys.addaudithook(_opened)


def _fetching(original):
    @functools.wraps(original)
    def fetch(self, possibly_batched_index):
        before, _state.fetching = getattr(_state, "fetching", False), True
        paths, _state.paths = getattr(_state, "paths", None), set()
        try:
            return original(self, possibly_batched_index)
        finally:
            _keep(_state.paths)
            _live.difference_update(_state.paths)
            _state.fetching, _state.paths = before, paths

    return fetch


def _keep(paths):
    """Make what is mapped of these files ordinary memory; without memory for it, it stays a map."""
    if paths:
        with contextlib.suppress(OSError):
            turn_private(paths)


def _opened(event, arguments):
    if not _live or event not in ("open", "os.truncate"):
        return
    path = arguments[0]
    if isinstance(path, (str, bytes, os.PathLike)) and (event == "os.truncate" or is_write(*arguments[1:3])):
        _keep({os.path.realpath(os.fsdecode(path))} & _live)


def _writing(original):
    @functools.wraps(original)
    def write(*args, **kwargs):
        _keep(_live)
        return original(*args, **kwargs)

    return write


def _watch_hdf5(files):
    original = files.File.__init__

    @functools.wraps(original)
    def __init__(self, name, *args, **kwargs):
        if (args[0] if args else kwargs.get("mode")) != "r":
            _keep(_live)
        original(self, name, *args, **kwargs)

    files.File.__init__ = __init__


def _patch(name, mapped, done, module):
    owner, _, attribute = name.rpartition(".")
    holder = getattr(module, owner, None) if owner else module
    original = getattr(holder, attribute, None)
    if original is None or hasattr(original, _MARK):
        return
    reading = _reading(original, mapped, done)
    vars(reading)[_MARK] = True
    if owner:
        setattr(holder, attribute, reading)
    else:
        rebind(module, attribute, original, Unbound(reading, module.__name__))


def _reading(original, mapped, done):
    in_vain = [0]

    @functools.wraps(original)
    def read(*args, **kwargs):
        if getattr(_state, "fetching", False) and in_vain[0] < MOST_IN_VAIN:
            _state.fetching = False  # what a map is made with reads as it always did
            try:
                found = mapped(original, args, kwargs)
            except Exception:  # compressed, of objects, in a format of its own: it is read
                found = None
            finally:
                _state.fetching = True
            if found is not None:
                in_vain[0] = 0
                done()
                return found
            in_vain[0] += 1
        return original(*args, **kwargs)

    return read


def _large(path):
    return isinstance(path, (str, os.PathLike)) and os.path.getsize(path) >= LEAST_BYTES


def _note(path):
    real = os.path.realpath(path)
    _state.paths.add(real)
    _live.add(real)


def _plain(array):
    """A memory map as an ordinary array, which is what the reader returns."""
    return array.view(sys.modules["numpy"].ndarray)


def _npy(original, args, kwargs):
    if len(args) != 1 or set(kwargs) - {"allow_pickle"} or not _large(args[0]):
        return None
    numpy = sys.modules["numpy"]
    found = original(args[0], mmap_mode="c", **kwargs)
    if not isinstance(found, numpy.memmap):
        return None
    _note(args[0])
    return _plain(found)


def _npz(original, args, kwargs):
    archive, key = args
    numpy, path = sys.modules["numpy"], archive.zip.fp.name
    info = archive.zip.getinfo(key if key in archive.zip.namelist() else key + ".npy")
    if info.compress_type or info.file_size < LEAST_BYTES or not isinstance(path, str):
        return None
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        file.seek(info.header_offset + _LOCAL_HEADER.size + name + extra)
        layout = numpy.lib.format
        version = layout.read_magic(file)
        read_header = layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0
        shape, by_columns, dtype = read_header(file)
        return _map(path, dtype, file.tell(), shape, "F" if by_columns else "C")


def _tif(original, args, kwargs):
    if len(args) != 1 or kwargs or not _large(args[0]):
        return None
    found = _plain(sys.modules["tifffile"].memmap(args[0], mode="c"))
    _note(args[0])
    return found


def _hdf5(original, args, kwargs):
    stored, wanted = args[0], args[1:]
    if wanted not in (((),), (Ellipsis,), (slice(None),)) or kwargs or stored.nbytes < LEAST_BYTES:
        return None
    file = stored.file
    if file.mode != "r" or file.driver != "sec2" or file.userblock_size or stored.dtype.kind not in "iufc":
        return None
    offset = stored.id.get_offset()  # None: in chunks, compressed, or not written yet
    return None if offset is None else _map(file.filename, stored.dtype, offset, stored.shape, "C")


def _pt(original, args, kwargs):
    place = kwargs.get("map_location")
    if len(args) != 1 or kwargs.get("mmap") or str(place or "cpu") != "cpu" or not _large(args[0]):
        return None
    found = original(*args, **{**kwargs, "mmap": True})
    _note(args[0])
    return found


def _map(path, dtype, offset, shape, order):
    """Part of a file as an array; None: its values would not lie where a processor wants them, or are objects."""
    numpy = sys.modules["numpy"]
    if dtype.hasobject or not dtype.isnative or offset % dtype.alignment:
        return None
    _note(path)
    return _plain(numpy.memmap(path, dtype, "c", offset, shape, order))
