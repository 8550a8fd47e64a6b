"""flatout makes PyTorch training run flat out: it measures where a run's time goes and what holds it back."""

from importlib.metadata import PackageNotFoundError, version

from flatout.errors import CommandError, FlatoutError, RecordError, UsageError

__all__ = ["CommandError", "FlatoutError", "RecordError", "UsageError", "__version__", "watch"]


def __getattr__(name: str) -> object:
    # Imported when asked for: `import flatout` costs a training nothing until it is watched.
    if name == "watch":
        from flatout.watching import watch

        return watch
    raise AttributeError(f"module 'flatout' has no attribute {name!r}")


try:
    __version__ = version("flatout")
except PackageNotFoundError:
    # The folder is on the path without having been installed; the number is then not known.
    __version__ = "0+unknown"
