"""Stand-ins for functions that cannot be timed from inside; they must be transparent to the user's code.

A stand-in for a function of C must not become a method in a class. The frames of a stand-in are not counted by
``warnings``, whose ``stacklevel`` names a line of the user's.
"""

import functools
import os

_SHOWN = {"posix": "os", "_io": "io"}
# Of all Pythons' ``warnings`` and ``logging``: frames of files with these two words in their name do not count.
_NOT_COUNTED = " (importlib._bootstrap)"


def unseen(original):
    """Decorate a function that stands in for ``original``: as ``functools.wraps``, and without a frame that counts."""

    def decorate(function):
        code = function.__code__
        function.__code__ = code.replace(co_filename=code.co_filename + _NOT_COUNTED)
        return functools.update_wrapper(function, original)

    return decorate


class Unbound:
    """Calls a function; as an attribute of a class it does not become a method, like a function of C.

    ``pathlib`` of Python 3.9 keeps ``os.open`` and others as attributes of a class.
    """

    def __init__(self, function, module=None):
        """Stand in for the function of that name in ``module``; None: in the one that shows it to users."""
        # Without the attributes of the wrapped object: those of another Unbound would replace the function.
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._original = getattr(function, "__wrapped__", function)
        self.__module__ = module or _SHOWN.get(function.__module__) or function.__module__

    def __reduce__(self):
        """Pickled by name: another process finds its own function there, wrapped or not."""
        return str(vars(self)["__name__"])

    # untested: runs under the name of another file, which coverage.py does not know
    def __call__(self, *args, **kwargs):
        """Call it."""
        return self._function(*args, **kwargs)

    __call__.__code__ = __call__.__code__.replace(co_filename=__call__.__code__.co_filename + _NOT_COUNTED)

    @property  # type: ignore[misc]
    def __class__(self):
        """For ``isinstance``: that of the function of C."""
        return type(self._original)

    def __getattr__(self, name):
        """Attributes that functions of C have and others lack: torch's compiler asks for ``__self__``."""
        if name in ("_original", "_function"):  # a copy is being made
            raise AttributeError(name)
        return getattr(self._original, name)

    def __eq__(self, other):
        """Equal to the original, so that lists of functions, such as those torch.compile may reorder, contain it."""
        return (
            other is self or other is self._original or (type(other) is Unbound and other._original is self._original)
        )

    def __hash__(self):
        """That of the function of C."""
        return hash(self._original)

    def __repr__(self):
        """As the function of C shows itself."""
        return repr(self._original)


def before_exit(action):
    """Call ``action()`` before ``os._exit``, which ends a process without atexit, as it does forked children."""
    original = os._exit

    @unseen(original)
    # untested: runs under the name of another file, which coverage.py does not know
    def _exit(status):
        action()
        original(status)

    os._exit = Unbound(_exit)
