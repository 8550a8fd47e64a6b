"""Functions replaced in every module that has imported them by their names, before or after."""

import sys


def rebind(module, name, original, new):
    """Replace a function in its module, in its package, and in scripts that imported it before torch.

    Args:
        module: that the function is looked up in.
        name: of the function there, and elsewhere.
        original: the function.
        new: what takes its place.
    """
    setattr(module, name, new)
    for other in list(sys.modules.values()):
        names = getattr(other, "__dict__", None)
        if type(names) is dict and names.get(name) is original:
            names[name] = new
