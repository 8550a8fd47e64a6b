"""Starts the probe in every Python process below ``flatout profile``, then runs the user's own sitecustomize.

Any Python of the process tree imports this file, so it keeps to syntax that old versions understand.
"""

import os
import sys


def _flatout_start():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    run = os.environ.get("FLATOUT_RUN")
    wanted = run or os.environ.get("FLATOUT_SETTINGS")
    if not wanted or sys.version_info < (3, 9) or "_flatout_probe" in sys.modules:
        return
    before = set(sys.modules)
    try:
        import importlib.util

        folder = os.path.dirname(here)
        spec = importlib.util.spec_from_file_location(
            "_flatout_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["_flatout_probe"] = package
        spec.loader.exec_module(package)
        attach = importlib.import_module("_flatout_probe.attach")
        attach.start(run) if run else attach.inject()
        _flatout_forget_shadowed(set(sys.modules) - before)
    except Exception:
        if os.environ.get("FLATOUT_DEBUG"):
            import traceback

            traceback.print_exc()


def _flatout_forget_shadowed(imported):
    """The program's own ``random.py`` comes before the library's module, though the probe has imported that one."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return
    begun = sys.argv[0] if getattr(sys, "argv", None) else ""
    if begun in ("", "-c", "-m"):
        folder = os.getcwd()
    else:
        folder = begun if os.path.isdir(begun) else os.path.dirname(os.path.realpath(begun))
    entries = set(os.listdir(folder))
    for name in imported:
        top = name.split(".")[0]
        package = os.path.join(folder, top, "__init__.py")
        if top != "_flatout_probe" and (top + ".py" in entries or (top in entries and os.path.isfile(package))):
            del sys.modules[name]


def _flatout_run_users_own():
    try:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec
    except ImportError:  # a Python of the tree older than anything that trains
        return
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_flatout_start()
_flatout_run_users_own()
