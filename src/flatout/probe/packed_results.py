"""What a function returned as bytes, the same for the same values, and back."""

import io
import pickle
import sys
from typing import Any

from .sites import is_user_file

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE, of classes that are made while the program runs
# What a class may have that makes its objects more than their attributes.
_OWN = {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"}
_OWN |= {"__slots__", "__new__", "__del__", "__copy__", "__deepcopy__", "__getattr__", "__getattribute__"}
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


class _Unkept(Exception):
    """Not what can be kept: it is of a type whose copy may not be the same."""


def pack(result):
    """The bytes of a result of plain values, containers, arrays, tensors, pictures, tables, and objects with these.

    None: it holds something else, or nothing that would be worth it.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, 5)
    pickler.fast = True  # what is the same twice is written twice: whether it is one object does not show
    try:
        found = _Parts()
        _check(result, found)
        if found.share_memory():
            return None  # parts that do would not, once they are copied
        pickler.dump(result)
    except Exception:
        return None
    return file.getvalue()


def unpack(stored):
    """A copy of what was packed."""
    return pickle.loads(stored)


class _Parts:
    """What may change of a result, by its number, and the memory of its arrays and tables, as spans of addresses."""

    def __init__(self):
        self.seen, self.arrays, self.tables = {}, [], []

    def share_memory(self):
        """Whether two arrays do, or an array and a table; tables have theirs to themselves once they are written to."""
        arrays = sorted(self.arrays)
        if any(end > start for (_, end), (start, _) in zip(arrays, arrays[1:])):
            return True
        return any(begin < end and start < finish for begin, finish in arrays for start, end in self.tables)


def _check(value, found, depth=0):
    """Raise ``_Unkept`` for what cannot be kept; note the parts of what can."""
    kind = type(value)
    if kind in _PLAIN:
        return
    # One object in two places would be two, of which a change shows in one only.
    if depth > 8 or id(value) in found.seen:
        raise _Unkept
    if kind is not tuple and not _is_named_tuple(kind) and not _is_scalar(value):
        found.seen[id(value)] = value
    if kind in (tuple, list) or _is_named_tuple(kind):
        for one in value:
            _check(one, found, depth + 1)
    elif kind is dict:
        for name, one in value.items():
            _check(name, found, depth + 1)
            _check(one, found, depth + 1)
    elif _is_tensor(value):
        found.arrays.append((value.data_ptr(), value.data_ptr() + value.numel() * value.element_size()))
    elif _is_array(value):
        if hasattr(value, "ctypes"):  # no scalar
            found.arrays.append((value.ctypes.data, value.ctypes.data + value.nbytes))
    elif _is_frame(value):
        found.tables += map(_span, _columns(value))
    elif _is_record(kind):
        for one in vars(value).values():
            _check(one, found, depth + 1)
    elif not _is_picture(value):
        raise _Unkept


def _is_named_tuple(kind):
    return kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


def _is_record(kind):
    """True for a class of the user's whose objects are their attributes, and are pickled as such."""
    module = sys.modules.get(kind.__module__)
    if not is_user_file(getattr(module, "__file__", None) or "<none>"):
        return False
    # Of a class that is written in C, objects hold more than attributes.
    return all(base.__flags__ & _HEAP_TYPE and not _OWN & vars(base).keys() for base in kind.__mro__[:-1])


def _is_array(value):
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if isinstance(value, numpy.generic):
        return value.dtype.kind in "biufc"
    # One with gaps is another one once it is copied.
    return (
        type(value) is numpy.ndarray
        and value.dtype.kind in "biufcUSM"
        and (value.flags.c_contiguous or value.flags.f_contiguous)
        and not _is_mapped(value)
    )


def _is_mapped(array):
    """True if its memory is that of a mapped file, which is read where it is used."""
    while array is not None:
        if type(array).__name__ in ("memmap", "mmap"):
            return True
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return False


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and type(value) is torch.Tensor
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.requires_grad
        and not value.is_conj()
        and not value.is_neg()
        and not value.__dict__  # attributes of its own
        and value.dtype is not torch.bfloat16
        and not value.is_quantized
        and value.permute(_order(value)).is_contiguous()
    )


def _is_picture(value):
    image = sys.modules.get("PIL.Image")
    return image is not None and type(value) is image.Image


def _is_frame(value):
    """True for a pandas table or column of numbers, dates and texts, whose memory nothing else writes to."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None or type(value) not in (getattr(pandas, name, None) for name in ("DataFrame", "Series")):
        return False
    # Since pandas 3, what is taken from a table is another one once it is written to.
    if int(pandas.__version__.partition(".")[0]) < 3 or value.attrs or not value.flags.allows_duplicate_labels:
        return False
    axes = (axis.dtype for axis in value.axes)
    return all(_is_plain(pandas, dtype) for dtype in (*(value.dtypes if value.ndim > 1 else [value.dtype]), *axes))


def _columns(frame):
    """The columns of a table as arrays of the same memory; those of texts are made just now."""
    columns = [frame] if frame.ndim == 1 else [frame.iloc[:, place] for place in range(frame.shape[1])]
    return [column.to_numpy() for column in columns]


def _span(array):
    """The first and the last address of an array, whatever its strides are."""
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)] if array.size else []
    first = array.ctypes.data + sum(min(each, 0) for each in reach)
    return first, array.ctypes.data + sum(max(each, 0) for each in reach) + (array.itemsize if array.size else 0)


def _is_scalar(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _is_plain(pandas, dtype):
    return isinstance(dtype, pandas.StringDtype) or getattr(dtype, "kind", "O") in "biufcmM"


def _order(tensor):
    """Its dimensions, those that lie furthest apart in memory first."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim))


class _Pickler(pickle.Pickler):
    def reducer_override(self, value):
        if _is_tensor(value):
            order = _order(value)
            back = sorted(range(len(order)), key=order.__getitem__)
            return _tensor, (value.permute(order).numpy(), back)
        if _is_array(value) and not isinstance(value, sys.modules["numpy"].generic) and not value.flags.writeable:
            return _read_only, (value.copy("K"),)
        return NotImplemented


def _read_only(array):
    array.flags.writeable = False
    return array


def _tensor(array, back):
    return sys.modules["torch"].from_numpy(array).permute(back)
