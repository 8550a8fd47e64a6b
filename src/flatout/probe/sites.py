"""The calling line of the user's own code."""

import os
import re
import site
import sys
import sysconfig
from typing import Any

from .recorder import REC

MAX_FRAMES = 24
PROBE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def _library_folders():
    folders = set(sysconfig.get_paths().values())
    try:
        folders.update(site.getsitepackages())
        folders.add(site.getusersitepackages())
    except AttributeError:  # a virtualenv of the old kind
        pass
    folders.discard(sysconfig.get_paths().get("data"))
    folders.discard(sysconfig.get_paths().get("scripts"))
    folders.add(os.path.dirname(PROBE_FOLDER))
    others = {os.path.abspath(entry) for entry in sys.path} - folders - {os.getcwd()}
    folders.update(folder for folder in others if _holds_packages(folder))
    return tuple(os.path.join(folder, "") for folder in folders if folder)


def _holds_packages(folder):
    """Whether pip installed packages into a folder of the path: ``pip install --target``, and PYTHONPATH."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False


_LIBRARIES = _library_folders()
_INSTALLED = re.compile(r"/(site|dist)-packages/|/torch/(autograd|distributed|nn|optim|utils)/")  # other environments'
_is_user: dict[str, bool] = {}


def is_user_file(path):
    """True if a source file belongs neither to the standard library nor to an installed package."""
    known = _is_user.get(path)
    if known is None:
        outside = path.startswith("<") and not path.startswith("<ipython")
        whole = os.path.abspath(path)
        known = _is_user[path] = not outside and not whole.startswith(_LIBRARIES) and not _INSTALLED.search(whole)
    return known


def describe_frame(code, line):
    """A frame as the record keeps it: file, line, function, source, whether it is the user's.

    The source is left empty: who closes the record fills it in.
    """
    path = code.co_filename
    function = getattr(code, "co_qualname", code.co_name)
    return [path, line, function, "", is_user_file(path)]


_site_ids: Any = {}


def user_frame():
    """The innermost frame of the user's code that led here, or None."""
    frame: Any = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_site():
    """Name id of the innermost line of the user's code on the stack; 0 if there is none."""
    frame = user_frame()
    if frame is None:
        return 0
    key = (frame.f_code, frame.f_lineno or 0)
    known = _site_ids.get(key)
    if known is None or known[0] is not REC.names:
        path, line, function, _, _ = describe_frame(*key)
        number = REC.names.add("site", file=path, line=line, function=function)
        known = _site_ids[key] = (REC.names, number)
    return known[1]


def user_line():
    """The same line as ``file:line``; None if there is none."""
    frame = user_frame()
    return None if frame is None else "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
