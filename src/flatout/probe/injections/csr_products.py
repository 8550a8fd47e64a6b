"""Products of sparse matrices in coordinates are computed by rows, from the second product of a matrix on."""

import functools
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from .. import csr_products
from ..wrap import casts, is_compiling, is_traced

_SETTING = "csr_products"
_FUNCTIONS = ((torch, "mm"), (torch, "spmm"), (torch, "matmul"), (torch.sparse, "mm"))
_METHODS = ("mm", "matmul", "__matmul__")


def install(injected, watch):
    """Patch the functions and methods that multiply matrices."""
    products = _Products(injected)
    for owner, name in (*_FUNCTIONS, *((torch.Tensor, name) for name in _METHODS)):
        setattr(owner, name, products.instead_of(getattr(owner, name)))


class _Products:
    """The matrices by rows."""

    def __init__(self, injected):
        self._injected = injected
        self._known: Any = WeakIdKeyDictionary()  # matrix -> its version, and it by rows; None: it was seen once

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
        if not csr_products.takes(matrix, dense):
            return None
        version = matrix._version, matrix._values()._version
        known = self._known.get(matrix)
        if known is None or known[0] != version:
            self._known[matrix] = version, None
            return None
        if known[1] is None:
            self._known[matrix] = known = version, csr_products.RowMatrix(matrix)
        self._injected.done(_SETTING)
        return csr_products.product(known[1], dense)
