"""Products of sparse matrices in coordinates are computed by rows, from the second product of a matrix on."""

import functools
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..module_passes import transformed
from ..replacements import csr_products, recognized_functions
from ..unbound import Unbound
from ..wrap import casts, is_compiling, is_traced

_SETTING = "csr_products"
_FUNCTIONS = ((torch, "mm"), (torch, "spmm"), (torch, "matmul"), (torch.sparse, "mm"))
_METHODS = ("mm", "matmul", "__matmul__")
_jit: Any = torch.jit


def install(injected, watch):
    """Patch the functions and methods that multiply matrices."""
    products = _Products(injected)
    for owner, name in (*_FUNCTIONS, *((torch.Tensor, name) for name in _METHODS)):
        original = getattr(owner, name)
        multiply = products.instead_of(original)
        if owner is torch.Tensor:
            setattr(owner, name, multiply)
            continue
        multiply.__name__ = multiply.__qualname__ = name  # pickled by it; torch.sparse.mm has another one
        setattr(owner, name, Unbound(multiply, owner.__name__))
        found = _jit._builtins._find_builtin(original)
        if found is not None:  # a function that is scripted may call it
            _jit._builtins._register_builtin(getattr(owner, name), found)


class _Known:
    """A matrix that was seen.

    Attributes:
        rows: it by rows; None: it was seen once.
    """

    def __init__(self, matrix):
        self._indices, self._values = matrix._indices(), matrix._values()
        self._version, self._copy = self._indices._version, self._values.clone()
        self.rows: Any = None

    def is_of(self, matrix):
        """Whether the matrix still holds the same: its values may be written through other tensors."""
        indices, values = matrix._indices(), matrix._values()
        places = indices.data_ptr() == self._indices.data_ptr() and indices._version == self._version
        return places and values.shape == self._copy.shape and torch.equal(values, self._copy)


class _Products:
    """The matrices by rows."""

    def __init__(self, injected):
        self._injected = injected
        self._known: Any = WeakIdKeyDictionary()  # matrix -> what is known of it

    def instead_of(self, original):
        """A function that answers where it can, and calls the original one elsewhere."""

        @functools.wraps(original)
        def multiply(*args, **kwargs):
            if len(args) != 2 or kwargs or is_compiling() or getattr(args[0], "layout", None) is not torch.sparse_coo:
                return original(*args, **kwargs)
            found = self._product(*args)
            return original(*args) if found is None else found

        return multiply

    def _product(self, matrix, dense):
        if is_traced() or casts() or not self._injected.get(_SETTING) or torch._C._len_torch_dispatch_stack():
            return None
        # Of checkpoints, a pass that is computed again has to save as many tensors.
        if transformed() or recognized_functions.keeps_tensors_elsewhere() or matrix.is_inference():
            return None
        if not csr_products.takes(matrix, dense):
            return None
        known = self._known.get(matrix)
        if known is None or not known.is_of(matrix):
            self._known[matrix] = _Known(matrix)
            return None
        if known.rows is None:
            known.rows = csr_products.RowMatrix(matrix)
        self._injected.done(_SETTING)
        return csr_products.product(known.rows, dense)
