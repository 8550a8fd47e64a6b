"""The user's code that a function reaches by name: functions of its modules, and methods of its own object."""

import dis
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..sites import is_user_file

_MOST = 256  # functions
_FLAGGED = sys.version_info >= (3, 12)  # a bit of LOAD_ATTR says that the attribute is called


class ReachedCode:
    """What a function reaches through globals, closures and its own object.

    Attributes:
        attributes: names of all attributes that the code reads.
        methods: those of them that it calls.
        loaded: names of globals.
        stores: names of attributes, and constant keys, that it assigns to.
        values: pairs of a namespace and a name whose value is no function, class or module.
        cells: of closures, whose values are no functions.
    """

    def __init__(self, function, owner=None):
        """Follow a function.

        Args:
            function: the first one.
            owner: class of the object whose method it is; None: it is no method.
        """
        self.attributes: Any = set()
        self.methods: Any = set()
        self.loaded: Any = set()
        self.stores: Any = set()
        self.cells: Any = []
        self._owner: Any = owner
        self._values: Any = {}
        self._seen: Any = set()
        self._pending = [function]
        while self._pending and len(self._seen) < _MOST:
            self._follow(self._pending.pop())
        # In one order in all processes: hashes of text differ between them.
        self.values = sorted(self._values.values(), key=lambda pair: (str(pair[0].get("__name__")), pair[1]))

    def _follow(self, function):
        if id(function) in self._seen or not is_user_file(function.__code__.co_filename):
            return
        self._seen.add(id(function))
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # it is empty yet
                continue
            if isinstance(value, FunctionType):
                self._pending.append(value)
            else:
                self.cells.append(cell)
        for code in _nested(function.__code__):
            self._read(function, code)

    def _read(self, function, code):
        before: Any = None
        constant: Any = None
        for one in dis.get_instructions(code):
            name = one.argval
            if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                self.loaded.add(name)
                self._meet(function.__globals__, name)
            elif one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                self.attributes.add(name)
                if one.opname == "LOAD_METHOD" or (_FLAGGED and (one.arg or 0) & 1):
                    self.methods.add(name)
                if before is not None and before.opname == "LOAD_GLOBAL":
                    self._of_module(function.__globals__.get(before.argval), name)
                elif before is not None and before.opname.startswith("LOAD_FAST"):
                    self._of_itself(code, before.argval, name)
            elif one.opname == "STORE_ATTR":
                self.stores.add(name)
            elif one.opname == "STORE_SUBSCR" and isinstance(constant, str):
                self.stores.add(constant)
            if one.opname == "LOAD_CONST":
                constant = name
            before = one

    def _of_module(self, module, name):
        if isinstance(module, ModuleType) and is_user_file(getattr(module, "__file__", None) or "<none>"):
            self._meet(vars(module), name)

    def _of_itself(self, code, variable, name):
        """A method or property of the object itself, which is the first argument."""
        if self._owner is None or code.co_varnames[:1] != (variable,):
            return
        for kind in self._owner.__mro__[:-1]:
            found = vars(kind).get(name)
            found = getattr(found, "__func__", getattr(found, "fget", None) or found)
            if isinstance(found, FunctionType):
                self._pending.append(found)

    def _meet(self, namespace, name):
        value = namespace.get(name)
        if isinstance(value, FunctionType):
            self._pending.append(value)
        elif name in namespace and not isinstance(value, (type, ModuleType)) and not callable(value):
            self._values[id(namespace), name] = (namespace, name)


def _nested(code):
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _nested(constant)
    return found
