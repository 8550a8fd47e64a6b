"""flatout makes PyTorch training run flat out: it measures where a run's time goes and what holds it back."""

from flatout.errors import CommandError, FlatoutError, RecordError, UsageError
from flatout.version import __version__

__all__ = ["CommandError", "FlatoutError", "RecordError", "UsageError", "__version__", "watch"]


def __getattr__(name: str) -> object:
    # Imported lazily: `import flatout` costs a training nothing until it is watched.
    if name == "watch":
        from flatout.watching import watch

        return watch
    raise AttributeError(f"module 'flatout' has no attribute {name!r}")
