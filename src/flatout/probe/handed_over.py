"""Whether a data set returns what its pipeline makes as it is, judged by the source of its ``__getitem__``."""

import ast
import inspect
import textwrap
import types
from typing import Any

from torch.utils.data import ConcatDataset, Subset

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class NotHandedOver(Exception):
    """Says what a data set does instead."""


def calls_handed_over(dataset, is_pipeline):
    """The calls of pipelines whose results a data set returns, alone or in a tuple, list or dictionary.

    Nothing else may be done with a result: whoever asks for its type, or keeps it, would notice what it is.

    Args:
        dataset: a map-style data set. That of a ``Subset`` or ``ConcatDataset`` is looked at instead.
        is_pipeline: tells whether an object is a pipeline.

    Returns:
        Code of a ``__getitem__`` -> the numbers of the lines that call pipelines.

    Raises:
        NotHandedOver: a pipeline's result is used otherwise, or there is none.
    """
    kind: Any = type(dataset)
    get = getattr(kind, "__getitem__", None)
    if get is Subset.__getitem__:
        return calls_handed_over(dataset.dataset, is_pipeline)
    if get is ConcatDataset.__getitem__:
        found = {}
        for part in dataset.datasets:
            found.update(calls_handed_over(part, is_pipeline))
        return found
    get = inspect.unwrap(get) if callable(get) else None
    if not isinstance(get, types.FunctionType) or getattr(kind, "__getitems__", None):
        raise NotHandedOver("%s has no __getitem__ of its own that reads one sample" % kind.__name__)
    return {get.__code__: _lines(get, dataset, is_pipeline)}


def _lines(get, dataset, is_pipeline):
    name = get.__qualname__
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(get))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        raise NotHandedOver("the source of %s was not found" % name) from None
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls: Any = [call for call in called if is_pipeline(_called(call.func, get, dataset))]
    if not calls:
        raise NotHandedOver("%s calls no Compose of torchvision" % name)
    use = _Use(tree)
    shared = any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(tree))
    if shared or not all(use.is_returned(call) for call in calls):
        raise NotHandedOver("%s does more with its pictures than to return them" % name)
    before = get.__code__.co_firstlineno - 1
    return {before + line for call in calls for line in range(call.lineno, call.end_lineno + 1)}


def _called(function, get, dataset):
    """The object that is called, where that is known without running anything of the user's."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id != next(iter(get.__code__.co_varnames), None):
            return None
        held = getattr(dataset, "__dict__", {})
        return held.get(function.attr, inspect.getattr_static(type(dataset), function.attr, None))
    if isinstance(function, ast.Name):
        cells = dict(zip(get.__code__.co_freevars, get.__closure__ or ()))
        if function.id in cells:
            try:
                return cells[function.id].cell_contents
            except ValueError:  # not bound yet
                return None
        return get.__globals__.get(function.id)
    return None


class _Use:
    """What a function does with the values of its expressions."""

    def __init__(self, tree):
        self.tree = tree
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def is_returned(self, node):
        """True if a value goes into what is returned, and nowhere else."""
        parent = self.parents[node]
        if isinstance(parent, ast.Return):
            return self._directly_in(parent, (*_NESTED, *_LOOPS))
        if isinstance(parent, (ast.Tuple, ast.List, ast.Dict)) or (
            isinstance(parent, ast.IfExp) and node is not parent.test
        ):
            return self.is_returned(parent)
        if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
            return False
        (target,) = parent.targets
        return (
            isinstance(target, ast.Name)
            and self._directly_in(parent, (*_NESTED, *_LOOPS))
            and all(self.is_returned(read) for read in self._reads(target.id, parent))
        )

    def _directly_in(self, node, not_in):
        """True if a statement is in none of these but the function itself."""
        while (node := self.parents[node]) is not self.tree:
            if isinstance(node, not_in):
                return False
        return True

    def _reads(self, name, assignment):
        """Where a name is read after its assignment, or by something that may run then."""
        end = assignment.end_lineno, assignment.end_col_offset
        for node in ast.walk(self.tree):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                yield node
            if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
                continue
            if (node.lineno, node.col_offset) >= end or not self._directly_in(node, _NESTED):
                yield node
