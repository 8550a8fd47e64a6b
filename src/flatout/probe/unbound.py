"""Python functions that stand in for functions of C where these lie in a class: they must not become methods there."""

import functools

_SHOWN = {"posix": "os", "_io": "io"}


class Unbound:
    """Calls a function; as an attribute of a class it stays what it is, as a function of C does.

    ``pathlib`` of Python 3.9 keeps ``os.open`` and others as attributes of a class.
    """

    def __init__(self, function, module=None):
        """Stand in for the function of that name in ``module``; None: in the one that shows it to users."""
        # Without the attributes of what it wraps: one of these, wrapped again, would bring its own function.
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self.__module__ = module or _SHOWN.get(function.__module__) or function.__module__

    def __reduce__(self):
        """By its name: another process finds its own function there, wrapped or not."""
        return str(vars(self)["__name__"])

    def __call__(self, *args, **kwargs):
        """Call it."""
        return self._function(*args, **kwargs)
