"""Python functions that stand in for functions of C where these lie in a class: they must not become methods there."""

import functools


class Unbound:
    """Calls a function; as an attribute of a class it stays what it is, as a function of C does.

    ``pathlib`` of Python 3.9 keeps ``os.open`` and others as attributes of a class.
    """

    def __init__(self, function):
        # Without the attributes of what it wraps: one of these, wrapped again, would bring its own function.
        functools.update_wrapper(self, function, updated=())
        self._function = function

    def __call__(self, *args, **kwargs):
        """Call it."""
        return self._function(*args, **kwargs)
