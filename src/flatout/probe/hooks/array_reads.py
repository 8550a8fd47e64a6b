"""Arrays that libraries read out of files whole: how many values a patch of them was cut from.

The kernel counts bytes as they lie in files; what a packed file becomes in memory shows only here.
"""

import functools

from .. import events, in_place
from ..recorder import REC, now, report_fault

# Below, the reading is no bill: rows of tables, labels, single small pictures.
LEAST_VALUES = 1 << 16
# Module -> class or None, function, the package that its calls are of. What each returns is an array.
READERS = (
    ("numpy.lib._format_impl", None, "read_array", "numpy"),  # behind numpy.load, of .npy and of .npz
    ("numpy.lib.format", None, "read_array", "numpy"),
    ("tifffile.tifffile", "TiffFile", "asarray", "tifffile"),
    ("tifffile.tifffile", "TiffPage", "asarray", "tifffile"),
    ("nibabel.arrayproxy", "ArrayProxy", "_get_unscaled", "nibabel"),
    ("nrrd.reader", None, "read_data", "nrrd"),
    ("SimpleITK.extra", None, "GetArrayViewFromImage", "SimpleITK"),
    ("h5py._hl.dataset", "Dataset", "__getitem__", "h5py"),
    ("zarr.core", "Array", "__getitem__", "zarr"),
    ("zarr.core.array", "Array", "__getitem__", "zarr"),
)
_ITEM_BYTES = {"I": 4, "F": 4}  # of Pillow's modes; of others, 1


def watch_for(watch):
    """Time the readers when their modules are imported."""
    for module, owner, name, package in READERS:
        watch(module, functools.partial(_instrument, owner, name, _begins, functools.partial(_ended, package)))
    watch("PIL.ImageFile", functools.partial(_instrument, "ImageFile", "load", _picture_begins, _picture_ended))


def _instrument(owner, name, begins, ended, module):
    found = getattr(module, owner, None) if owner else module
    function = getattr(found, name, None)
    if function is None:
        return
    function = in_place.innermost(function)
    if in_place.is_python(function) and not in_place.is_instrumented(function):
        in_place.instrument(function, begins, ended)


def _begins():
    return now() if REC.on else None


def _ended(package, start, result):
    try:
        values = getattr(result, "size", 0)
        if type(values) is int:
            _read(package, start, result.shape, values, result.nbytes)
    except Exception:
        report_fault("array reads")


def _picture_begins(picture=None):
    # Pillow calls it before everything that it does with a picture; what is to be decoded is in ``tile``.
    return (now(), picture) if REC.on and getattr(picture, "tile", None) else None


def _picture_ended(begun, result):
    try:
        start, picture = begun
        if not picture.tile:  # else it could not be decoded
            values = picture.width * picture.height * len(picture.getbands())
            _read("PIL", start, picture.size, values, values * _ITEM_BYTES.get(picture.mode[:1], 1))
    except Exception:
        report_fault("array reads")


def _read(package, start, shape, values, size):
    if values >= LEAST_VALUES:
        sides = sum(side >= events.LEAST_SIDE for side in shape)
        REC.emit(events.ARRAY_READ, start, now(), REC.names.text(package), values, events.array_bits(size, sides))
