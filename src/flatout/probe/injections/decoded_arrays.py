"""Arrays that libraries unpack from whole files, unpacked once: later calls get a copy of the stored array.

What a call returns is stored if it is an ordinary array, and is taken to be the same for the same file and arguments.
"""

import enum
import functools
import json
import os
import struct
import sys
from typing import Any

from ..unbound import Unbound
from .rebinding import rebind

_HEAD = struct.Struct("<I")
_LEAST_BYTES = 1 << 14  # copying a smaller array, with finding it, takes as long as unpacking it
_PLAIN = (
    bool,
    int,
    float,
    str,
    bytes,
    slice,
    enum.Enum,
    type(None),
    type(Ellipsis),
)  # their ``repr`` tells values apart
_MARK = "_flatout_unpacks"  # of functions that another name of the same class has patched
_PACKED = (".gz", ".bz2", ".zst")


def patch(kept, watch):
    """Patch the libraries once they are imported."""
    for module, name, source in (
        ("cv2", "imread", _path),
        ("cv2", "imdecode", _buffer),
        ("tifffile.tifffile", "imread", _path),
        ("soundfile", "read", _path),
        ("torchvision.io.image", "decode_image", _buffer),
        ("torchvision.io.image", "decode_jpeg", _buffer),
        ("torchvision.io.image", "decode_png", _buffer),
        ("numpy.lib._npyio_impl", "NpzFile.__getitem__", _archive),
        ("numpy.lib.npyio", "NpzFile.__getitem__", _archive),
        ("nibabel.arrayproxy", "ArrayProxy._get_unscaled", _proxied),
        ("h5py._hl.dataset", "Dataset.__getitem__", _in_chunks),
    ):
        watch(module, functools.partial(_patch, kept, name, source))


def _path(first):
    return first if isinstance(first, (str, bytes, os.PathLike)) else None


def _buffer(first):
    if isinstance(first, (str, os.PathLike)):
        return first  # torchvision reads files, too
    data = memoryview(first.numpy() if hasattr(first, "numpy") else first)
    return data.cast("B") if data.contiguous and data.itemsize == 1 else None


def _archive(archive):
    return archive.zip.fp.fileno()


def _proxied(proxy):
    path = proxy.file_like
    return path if isinstance(path, str) and path.endswith(_PACKED) else None


def _in_chunks(stored):
    """The file of a compressed data set: one that is not compressed is read as fast as it is copied."""
    return stored.file.filename if stored.compression and stored.file.mode == "r" else None


def _patch(kept, name, source, module):
    owner, _, attribute = name.rpartition(".")
    holder = getattr(module, owner, None) if owner else module
    original = getattr(holder, attribute, None)
    if original is None or hasattr(original, _MARK):
        return
    # A method is called with its object, which the form leaves out; what tells its file is in the source.
    place = 1 if owner else 0

    @functools.wraps(original)
    def unpacked(*args, **kwargs):
        key = _key(kept, name, source, place, args, kwargs)
        stored = kept.find(key) if key is not None else None
        if stored is not None and kept.checked:
            found = _unpack(stored)
            kept.used()
            return found
        found = original(*args, **kwargs)
        if key is not None:
            made = _pack(found)
            if stored is not None:
                kept.compare(stored, made if made is not None else b"")
            elif made is not None:
                kept.keep(key, made)
        return found

    vars(unpacked)[_MARK] = True
    if owner:
        setattr(holder, attribute, unpacked)
    else:
        rebind(module, attribute, original, Unbound(unpacked, module.__name__))


def _key(kept, name, source, place, args, kwargs):
    """The key of a call; None: its file or its arguments cannot be told."""
    try:
        values = (*args[1:], *kwargs.values())
        if not args or not all(map(_plain, values)):
            return None
        found = source(args[0])
        told = kept.source_of(found) if found is not None else None
        where = _WHERE[source](args[0]) if told is not None and source in _WHERE else ()
    except Exception:  # a closed archive, a tensor on a GPU: the original says what it thinks of it
        return None
    return kept.key(told, (name, args[1:], sorted(kwargs.items()), where)) if told is not None else None


# What tells arrays of one file from one another, besides the arguments of the call.
_WHERE: Any = {
    _proxied: lambda proxy: (proxy._offset, proxy._shape, proxy._dtype.str, proxy.order),
    _in_chunks: lambda stored: (stored.name,),
}


def _plain(value):
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_plain, value)))


def _pack(found: Any):
    """An array, a tensor, or an array with a sampling rate, as bytes; None: something else."""
    kind: str = "array"
    rate: Any = None
    array: Any = found
    torch = sys.modules.get("torch")
    if type(found) is tuple and len(found) == 2 and type(found[1]) is int:
        kind, (array, rate) = "tuple", found
    if torch is not None and type(array) is torch.Tensor:
        if kind != "array" or array.device.type != "cpu" or array.requires_grad or array.layout is not torch.strided:
            return None
        kind, array = "tensor", array.numpy()
    numpy = sys.modules["numpy"]
    if type(array) is not numpy.ndarray or array.dtype.kind not in "biufc" or not array.flags.writeable:
        return None
    # As they lie in memory; only what fills its memory can be laid out again.
    straight = array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    if array.nbytes < _LEAST_BYTES or not straight.flags.c_contiguous:
        return None
    head = json.dumps([kind, rate, array.dtype.str, array.shape, array.strides]).encode()
    return b"".join((_HEAD.pack(len(head)), head, straight.reshape(-1).view("B").data))


def _unpack(stored):
    numpy = sys.modules["numpy"]
    (length,) = _HEAD.unpack_from(stored)
    kind, rate, dtype, shape, strides = json.loads(bytes(stored[_HEAD.size : _HEAD.size + length]))
    values = numpy.frombuffer(stored, "B", offset=_HEAD.size + length).copy()
    array = numpy.ndarray(shape, dtype, values, 0, strides)
    if kind == "tensor":
        return sys.modules["torch"].from_numpy(array)
    return (array, rate) if kind == "tuple" else array
