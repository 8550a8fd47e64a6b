"""Code of a data set that does the same to each row: it indexes arrays, converts, and computes by element.

Only then what it answers to an array of indices is, row by row, what it answers to one index, whatever the values are.
Branches, loops, writes, reductions, products of matrices and calls of anything unknown may treat a rare row in another
way, or leave something behind.
"""

import dis
import sys
import types
from typing import Any

import torch
from torch.utils.data import TensorDataset

# Names of functions and methods that do the same to each element, or that only convert.
_CALLED = {"tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor", "float", "long", "double", "int", "bool"}
_CALLED |= {"astype", "to", "type", "copy", "clone", "contiguous", "asarray", "array", "half", "ascontiguousarray"}
_MODULES = ("torch", "numpy")
_WRITES = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "STORE_SLICE")
_OTHERS = {"SETUP_FINALLY", "SETUP_WITH", "GET_ITER", "FOR_ITER", "YIELD_VALUE", "RAISE_VARARGS", "IMPORT_NAME"}
_OTHERS |= {"CONTAINS_OP", "IS_OP", "MAKE_FUNCTION", "LOAD_CLOSURE", "BINARY_MATRIX_MULTIPLY", "PUSH_EXC_INFO"}


def why_not_by_row(data_set):
    """What in a data set's code may not do the same to each row, as text; None: nothing.

    Args:
        data_set: that is asked for samples.
    """
    kind = type(data_set)
    if kind.__getitem__ is TensorDataset.__getitem__:
        return None
    function = kind.__getitem__
    if not isinstance(function, types.FunctionType):
        return "the code of its data set is not known"
    code, known = function.__code__, function.__globals__
    if code.co_freevars or code.co_cellvars:
        return "its data set's code uses variables of a function around it"
    for one in dis.get_instructions(code):
        if "JUMP" in one.opname or one.opname in _OTHERS or getattr(code, "co_exceptiontable", None):
            return "its data set's code has branches, loops or calls of its own kind"
        if one.opname in _WRITES or one.opname.startswith("INPLACE_") or _in_place(one):
            return "its data set's code writes"
        if one.opname == "BINARY_OP" and one.argrepr.startswith("@"):
            return "its data set's code multiplies matrices"
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not _is_harmless(str(one.argval), known):
            return "its data set's code uses %s" % one.argval
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and not _is_data(str(one.argval), data_set):
            return "its data set's code uses %s" % one.argval
    return None


def _in_place(instruction):
    return instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")


def _is_harmless(name, known):
    value = known.get(name)
    if isinstance(value, types.ModuleType):
        return value.__name__ in _MODULES
    return name in _CALLED or isinstance(value, (int, float))


def _is_data(name, data_set):
    """True for an attribute that holds data, a type, or a method that treats each element alike."""
    if name in _CALLED or name.rstrip("0123456789") in ("float", "int", "uint", "long", "double", "bool"):
        return True
    numpy: Any = sys.modules.get("numpy")
    kinds = (torch.Tensor, int, float) if numpy is None else (torch.Tensor, numpy.ndarray, int, float)
    return type(vars(data_set).get(name)) in kinds  # what else has an index may be code of its own
