"""The user's code that a function reaches by name: functions of its modules, and methods of objects that it has."""

import dis
import functools
import importlib.util
import itertools
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from ..sites import is_user_file
from .object_state import attributes_of, is_of_the_users

_MOST = 256  # functions
_MOST_HELD = 64  # parts of a list or dict of objects
_DEEPEST = 3
# Names after which anything may be read: no code says what. Opened files and listed folders are seen in other ways.
_BLIND_BUILTINS = {"eval", "exec", "globals", "locals", "vars", "__import__"}
_BLIND = {"import_module", "_getframe", "getsize", "getmtime", "getctime", "st_size", "st_mtime", "st_mtime_ns"}
_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}
# Methods that are called without their names; of its own object, a function that is called looks for these only.
_OF_ATTRIBUTES = {"__getattr__", "__getattribute__"}
_IMPLICIT = _OF_ATTRIBUTES | {"__call__", "__getitem__", "__len__", "__iter__", "__next__", "__contains__", "forward"}
_WITH_STATE = (torch.nn.Module, functools.partial)  # of the callable objects of libraries
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
        environment: whether it reads environment variables.
        unknown: why it is not known what it reads, as text; empty: it is known.
    """

    def __init__(self, function, owner=None, held=None):
        """Follow a function.

        Args:
            function: the first one.
            owner: class of the object whose method it is; None: it is no method.
            held: other values whose methods it may call, as those of the object's attributes; None: methods of other
                objects are not followed, global ones among them.
        """
        self.attributes: Any = set()
        self.methods: Any = set()
        self.loaded: Any = set()
        self.stores: Any = set()
        self.cells: Any = []
        self._owner: Any = owner
        self._values: Any = {}
        self._seen: Any = set()
        self._kinds: Any = set()  # classes of the user's, of objects that the code has
        self._modules: Any = []  # the user's, imported inside functions
        self.environment, self.unknown = False, ""
        self._pending: Any = []
        self._add(function)
        self._follows_objects = held is not None
        for value in held or ():
            self._has(value)
        while self._pending and len(self._seen) < _MOST:
            self._follow(self._pending.pop())
            if not self._pending:
                self._follow_objects()
        # In one order in all processes: hashes of text differ between them.
        self.values = sorted(self._values.values(), key=lambda pair: (str(pair[0].get("__name__")), pair[1]))

    def _add(self, function):
        if id(function) not in self._seen and is_user_file(function.__code__.co_filename):
            self._seen.add(id(function))
            self._pending.append(function)

    def _follow(self, function):
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # it is empty yet
                continue
            self._has(value)
            if not isinstance(value, FunctionType):
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
                self._name(name, _BLIND if name in function.__globals__ else _BLIND | _BLIND_BUILTINS)
                self._meet(function.__globals__, name)
            elif one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                self.attributes.add(name)
                self._name(name)
                if one.opname == "LOAD_METHOD" or (_FLAGGED and (one.arg or 0) & 1):
                    self.methods.add(name)
                if before is not None and before.opname == "LOAD_GLOBAL":
                    self._of_module(function.__globals__.get(before.argval), name)
                elif before is not None and before.opname.startswith("LOAD_FAST"):
                    self._of_itself(code, before.argval, name)
            elif one.opname == "IMPORT_NAME":
                self._import(name, function.__globals__.get("__package__"))
            elif one.opname == "IMPORT_FROM":
                self.attributes.add(name)
                self._name(name)
            elif one.opname == "STORE_ATTR":
                self.stores.add(name)
            elif one.opname == "STORE_SUBSCR" and isinstance(constant, str):
                self.stores.add(constant)
            if one.opname == "LOAD_CONST":
                constant = name
            before = one

    def _name(self, name, blind=_BLIND):
        """The code names something, as a global or an attribute."""
        if name in blind:
            self.unknown = self.unknown or "it uses %s" % name
        if name in _ENVIRONMENT:
            self.environment = True

    def _of_module(self, module, name):
        if module is sys and name == "modules":
            self.unknown = self.unknown or "it uses sys.modules"
        if isinstance(module, ModuleType) and _is_users(module):
            self._meet(vars(module), name)

    def _import(self, name, package):
        """A module that is imported inside a function."""
        module = sys.modules.get("%s.%s" % (package, name)) or sys.modules.get(name)
        if module is not None and _is_users(module):
            self._modules.append(module)
        elif module is None and not _is_librarys(name):
            self.unknown = self.unknown or "it imports %s, which was not imported before" % (name or "what lies beside")

    def _follow_objects(self):
        """By the names that the code uses: methods and properties of its objects, and what modules have."""
        names = self.attributes | _IMPLICIT
        for kind in list(self._kinds):
            for base in kind.__mro__[:-1]:
                for name in names & vars(base).keys() if is_of_the_users(base) else ():
                    self._follow_method(vars(base)[name])
        for base in self._owner.__mro__[:-1] if self._owner is not None else ():
            for name in _OF_ATTRIBUTES & vars(base).keys() if is_of_the_users(base) else ():
                self._follow_method(vars(base)[name])
        for module in self._modules:
            for name in self.attributes & vars(module).keys():
                self._meet(vars(module), name)

    def _follow_method(self, found):
        found = getattr(found, "__func__", getattr(found, "fget", None) or found)
        if isinstance(found, FunctionType):
            self._add(found)

    def _of_itself(self, code, variable, name):
        """A method or property of the object itself, which is the first argument."""
        if self._owner is None or code.co_varnames[:1] != (variable,):
            return
        for kind in self._owner.__mro__[:-1]:
            if name in vars(kind):
                self._follow_method(vars(kind)[name])

    def _has(self, value, depth=0):
        """The code has a value: it may call it, or methods of objects in it."""
        if isinstance(value, FunctionType):
            self._add(value)
        elif not self._follows_objects:
            return
        elif depth < _DEEPEST and isinstance(value, (list, tuple, dict)):
            for part in itertools.islice(value.values() if isinstance(value, dict) else value, _MOST_HELD):
                self._has(part, depth + 1)
        elif depth < _DEEPEST and not isinstance(value, (type, ModuleType)) and is_of_the_users(type(value)):
            self._kinds.add(type(value))
            for part in attributes_of(value).values():
                self._has(part, depth + 1)

    def _meet(self, namespace, name):
        value = namespace.get(name)
        inner = _inner(value)
        if isinstance(value, FunctionType):
            self._add(value)
        elif name in namespace and not isinstance(value, (type, ModuleType)):
            self._has(value if inner is None else inner)
            if not callable(value) or is_of_the_users(type(value)) or isinstance(value, _WITH_STATE):
                self._values[id(namespace), name] = (namespace, name)


def _inner(value):
    """The function that ``functools`` has put something around; None: it has not."""
    if isinstance(value, functools.partial):
        return value.func
    return getattr(value, "__wrapped__", None) if type(value).__module__ == "functools" else None


def _is_users(module):
    return is_user_file(getattr(module, "__file__", None) or "<none>")


def _is_librarys(name):
    """True for a module that is not imported yet, and not the user's."""
    try:
        spec = importlib.util.find_spec(name.partition(".")[0]) if name else None
    except (ImportError, ValueError):
        return False
    return spec is not None and not is_user_file(spec.origin or "<none>")


def _nested(code):
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _nested(constant)
    return found
