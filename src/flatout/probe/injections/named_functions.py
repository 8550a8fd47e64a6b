"""Functions that a setting names as FILE:FUNCTION, found among all objects of the process."""

import os
from types import FunctionType

from ..collected_objects import collected_objects


class NamedFunction:
    """A function as a setting names it.

    Attributes:
        text: FILE:FUNCTION.
        missing: why no function was found.
    """

    def __init__(self, text):
        self.text = text
        self.file, self.name = text.rsplit(":", 1)
        self.missing = "there is no such function"

    def names(self, function):
        """True if this is a function of that name, in that file."""
        code = function.__code__
        names = [function.__qualname__.replace("<locals>.", "")]
        if not hasattr(code, "co_qualname"):
            names.append(code.co_name)  # before Python 3.11, records hold the last part of a name only
        if self.name not in names:
            return False
        return ("/" + code.co_filename.replace(os.sep, "/")).endswith("/" + self.file.lstrip("/"))


def find(named):
    """Pairs of a named function and an object of that name: closures and reloaded modules have several.

    A file in the working folder goes before others of its name; where only others have the function, in several
    files, none is taken.

    Args:
        named: of class NamedFunction.
    """
    functions = [one for one in collected_objects() if type(one) is FunctionType]
    for one in named:
        found = [function for function in functions if one.names(function)]
        # A decorator of the same file has the function's name: what it calls is meant, once.
        found = [function for function in found if getattr(function, "__wrapped__", None) not in found]
        files = {os.path.abspath(function.__code__.co_filename) for function in found}
        here = os.path.abspath(one.file)
        if here not in files and len(files) > 1:
            one.missing = "several files have such a function: %s" % ", ".join(sorted(files))
            continue
        for function in found:
            if here not in files or os.path.abspath(function.__code__.co_filename) == here:
                yield one, function
