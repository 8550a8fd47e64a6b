"""Libraries that open files themselves, in C: their functions get the path of the copy."""

import functools
import os

from ..unbound import Unbound
from .rebinding import rebind

# Module -> functions that take the path of a file as their first argument.
READERS = {
    "cv2": ("imread", "imreadmulti"),
    "torchvision.io.image": ("read_file",),
    "h5py._hl.files": ("File.__init__",),
    "soundfile": ("SoundFile.__init__",),
}
# These decide by the file name's extension.
BY_ENDING = {"SimpleITK": ("ReadImage",), "openslide": ("OpenSlide.__init__",)}
PATH_NAMES = ("filename", "path", "name", "file", "fileName")


def install(mapped, watch, endings, changed=lambda path: None):
    """Patch them once they are imported.

    Args:
        mapped: returns the path to read in place of another one, or that path itself.
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.
        endings: whether the paths that ``mapped`` gives end as the files' names do.
        changed: called with the path of a file that is opened for writing.
    """
    for module, names in [*READERS.items(), *(BY_ENDING.items() if endings else ())]:
        watch(module, functools.partial(_patch, mapped, changed, names))


def _patch(mapped, changed, names, module):
    for name in names:
        owner, _, attribute = name.rpartition(".")
        holder = getattr(module, owner, None) if owner else module
        original = getattr(holder, attribute, None)
        if original is not None:
            patched = _reading(original, mapped, changed, 1 if owner else 0)
            if owner:
                setattr(holder, attribute, patched)
            else:
                rebind(module, attribute, original, Unbound(patched, module.__name__))


def _reading(original, mapped, changed, place):
    """The function with the path mapped that stands at a place of its arguments, or has a name."""

    @functools.wraps(original)
    def patched(*args, **kwargs):
        if _writes(args[place + 1 : place + 2], kwargs):
            changed(
                args[place] if len(args) > place else next((kwargs[key] for key in PATH_NAMES if key in kwargs), None)
            )
            return original(*args, **kwargs)
        mine, named = list(args), dict(kwargs)
        if len(mine) > place:
            path = mine[place]
            there = mine[place] = _each(mapped, path)
        else:
            key = next((name for name in PATH_NAMES if name in named), None)
            if key is None:
                return original(*args, **kwargs)
            path = named[key]
            there = named[key] = _each(mapped, path)
        if there is path:
            return original(*args, **kwargs)
        try:
            found = original(*mine, **named)
        except Exception:
            if _exist(there):
                raise
            return original(*args, **kwargs)
        # OpenCV returns None if the file does not exist: the copy has just been removed.
        return original(*args, **kwargs) if found is None and not place and not _exist(there) else found

    return patched


def _writes(mode, kwargs):
    mode = mode[0] if mode else kwargs.get("mode", "r")
    return isinstance(mode, str) and bool(set(mode) & set("wax+"))


def _each(mapped, path):
    """One path, or several."""
    if not isinstance(path, (list, tuple)):
        return mapped(path)
    there = type(path)(mapped(one) for one in path)
    return path if there == path else there


def _exist(there):
    return all(os.path.exists(one) for one in (there if isinstance(there, (list, tuple)) else [there]))
