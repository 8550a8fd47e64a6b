"""Files that libraries open by themselves: audit hooks are told as by Python's own ``open``."""

import functools
import os
import sys

from .. import in_place

# Module -> class or None, function: its first argument, after the object, is a path.
OPENERS = (
    ("pyarrow.parquet.core", None, "read_table"),  # behind pandas.read_parquet, too
    ("pyarrow.parquet.core", "ParquetFile", "__init__"),
    ("pyarrow.feather", None, "read_table"),
    ("polars.io.parquet.functions", None, "read_parquet"),
    ("polars.io.csv.functions", None, "read_csv"),
    ("h5py._hl.files", "File", "__init__"),
    ("soundfile", "SoundFile", "__init__"),
    ("torchvision.io.image", None, "read_file"),
    ("SimpleITK.extra", None, "ReadImage"),
    ("rasterio", None, "open"),
)


def watch_for(watch):
    """Tell of what these open, once their modules are imported."""
    for module, owner, name in OPENERS:
        watch(module, functools.partial(_instrument, owner, name))


def _instrument(owner, name, module):
    found = getattr(module, owner, None) if owner else module
    function = getattr(found, name, None)
    if function is None:
        return
    function = in_place.innermost(function)
    if in_place.is_python(function) and not in_place.is_instrumented(function):
        in_place.instrument(function, _of_object if owner else _opens)


def _opens(path=None):
    if isinstance(path, (str, os.PathLike)):
        sys.audit("open", os.fspath(path), "rb", os.O_RDONLY)


def _of_object(itself, path=None):
    _opens(path)
