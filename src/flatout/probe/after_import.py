"""Run a function right after a module was imported, by wrapping its loader once."""

import sys
import time


class AfterImport:
    """A meta-path finder that only wraps the loaders of the modules it was asked to watch."""

    def __init__(self, on_timed, on_failure):
        self._actions = {}
        self._on_timed = on_timed
        self._on_failure = on_failure
        self._finding = set()

    def watch(self, name, action=None):
        """Call ``action(module)`` after ``name`` was executed; now if it already was."""
        module = sys.modules.get(name)
        if module is not None:
            self._run(action, module)
            return
        self._actions.setdefault(name, []).append(action)

    def install(self):
        """Put this finder first."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        """Find the module by the other finders, and wrap its loader when it is watched."""
        if name not in self._actions or name in self._finding:
            return None
        self._finding.add(name)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec = find(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, self)
                    return spec
            return None
        finally:
            self._finding.discard(name)

    def executed(self, module, start, end):
        """Called by the wrapped loader."""
        name = module.__name__
        actions = self._actions.pop(name, ())
        self._on_timed(name, start, end)
        for action in actions:
            self._run(action, module)

    def _run(self, action, module):
        if action is None:
            return
        try:
            action(module)
        except Exception as error:  # another version of that module: its part is not measured
            self._on_failure(module.__name__, error)


class _Loader:
    """The module's own loader, with a call after it has run; it takes itself away again."""

    def __init__(self, loader, watcher):
        self._loader = loader
        self._watcher = watcher

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module):
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        start = time.monotonic_ns()
        self._loader.exec_module(module)
        self._watcher.executed(module, start, time.monotonic_ns())
