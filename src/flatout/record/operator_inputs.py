"""The inputs of an operator in the kernel trace: shapes and types of its tensors, values of its other arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Types as C++ names them, with torch's names.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
}
ITEM_BYTES = {
    **dict.fromkeys(("float64", "int64", "complex64"), 8),
    "complex128": 16,
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
}
_LIST = "TensorList"
# Strides and masks decide how much these do; elsewhere the values, such as a learning rate, do not matter.
_VALUES_MATTER = re.compile("conv|attention")
_MOST_DIMENSIONS, _LARGEST = 64, 1 << 50


@dataclass(frozen=True)
class Tensor:
    """A tensor that an operator takes or makes.

    Attributes:
        shape: its dimensions.
        dtype: as torch names it.
        stored: elements in memory; an expanded tensor repeats them.
    """

    shape: tuple[int, ...]
    dtype: str
    stored: int

    @classmethod
    def dense(cls, shape: Sequence[int], dtype: str) -> Tensor:
        """A tensor that stores each of its elements."""
        return cls(tuple(shape), dtype, math.prod(shape))

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in memory."""
        return self.stored * ITEM_BYTES[self.dtype]


# A tensor, a list of them, or another argument as text; None: absent, or not understood.
Input = Tensor | tuple[Tensor, ...] | str | None


def read_inputs(arguments: Mapping[str, Any], listed_dtype: str | None) -> tuple[Input, ...]:
    """The inputs of an operator, in the order of its signature; what is damaged is None.

    Args:
        arguments: ``args`` of the operator in the trace.
        listed_dtype: type of tensors in lists, which the trace does not give.
    """
    shapes, types, strides, values = (
        _list(arguments.get(key)) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    )
    found: list[Input] = []
    for place, (shape, kind) in enumerate(zip(shapes, types, strict=False)):
        stride = strides[place] if place < len(strides) else None
        if kind == _LIST:
            found.append(_tensors(shape, listed_dtype))
        elif type(kind) is str and kind in DTYPES:
            found.append(_tensor(shape, stride, DTYPES[kind]))
        else:
            value = values[place] if place < len(values) else None
            found.append(value if type(value) is str and value else None)
    return tuple(found)


def tensors_of(arguments: Mapping[str, Any]) -> list[Tensor]:
    """The tensors among the inputs of an operator, those in lists too, which count as float32.

    Args:
        arguments: ``args`` of the operator in the trace.
    """
    inputs = read_inputs(arguments, "float32")
    return [one for part in inputs for one in (part if isinstance(part, tuple) else (part,)) if type(one) is Tensor]


def call_key(name: str, arguments: Mapping[str, Any]) -> str:
    """A text that is the same for calls of an operator that have the same to do."""
    key = f"{name} {arguments.get('Input Dims')} {arguments.get('Input type')}"
    return f"{key} {arguments.get('Concrete Inputs')}" if _VALUES_MATTER.search(name) else key


def number(arguments: Mapping[str, Any], field: str) -> int | None:
    """A field of the trace that is a whole number; None: there is none.

    "External id" is shared by an operator and the kernels that it launches, "Sequence number" by an operator and its
    part of the backward pass.
    """
    value = arguments.get(field)
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _tensors(shapes: Any, dtype: str | None) -> tuple[Tensor, ...] | None:
    if dtype not in ITEM_BYTES:
        return None
    found = [_tensor(shape, None, dtype) for shape in _list(shapes)]
    return tuple(one for one in found if one is not None) if None not in found else None


def _tensor(shape: Any, strides: Any, dtype: str) -> Tensor | None:
    if not _sizes(shape) or math.prod(shape) > _LARGEST or (shape and strides == []):
        return None  # sparse tensors have no strides: how much an operator does with one, its shape does not say
    strides = strides if _sizes(strides) and len(strides) == len(shape) else [1] * len(shape)
    stored = math.prod(size for size, stride in zip(shape, strides, strict=True) if stride)
    return Tensor(tuple(shape), dtype, stored)


def _sizes(value: Any) -> bool:
    if type(value) is not list or len(value) > _MOST_DIMENSIONS:
        return False
    return all(type(size) is int and 0 <= size <= _LARGEST for size in value)
