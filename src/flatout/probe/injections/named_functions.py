"""Functions that a setting names as FILE:FUNCTION, found among all objects of the process."""

import gc
import os
from types import FunctionType


class NamedFunction:
    """A function as a setting names it.

    Attributes:
        text: FILE:FUNCTION.
    """

    def __init__(self, text):
        self.text = text
        self.file, self.name = text.rsplit(":", 1)

    def names(self, function):
        """True if this is a function of that name, in that file."""
        code = function.__code__
        if self.name not in (function.__qualname__.replace("<locals>.", ""), code.co_name):
            return False  # before Python 3.11, records hold the last part of a name only
        return ("/" + code.co_filename.replace(os.sep, "/")).endswith("/" + self.file.lstrip("/"))


def find(named):
    """Pairs of a named function and an object of that name: closures and reloaded modules have several.

    Args:
        named: of class NamedFunction.
    """
    functions = [one for one in gc.get_objects() if type(one) is FunctionType]
    for function in functions:
        for one in named:
            if one.names(function):
                yield one, function
                break
