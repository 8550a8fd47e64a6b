"""Optional packages: one clear message with the command that installs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from flatout.errors import UsageError

# Extra -> the packages that show it is installed, by import name.
EXTRAS = {
    "train": ("torch", "torchvision", "timm", "pydantic", "pytorch_lightning", "ruamel.yaml"),
    "config": ("libcst", "ruamel.yaml", "tomlkit"),
    "cluster": ("ray",),
    "stage": ("awscrt", "botocore", "obstore", "PIL", "urllib3"),
    "hub": ("datasets",),
    "mcp": ("mcp", "uvicorn"),
    "scores": ("monai", "scipy"),
    "volumes": (
        "dynamic_network_architectures",
        *("google_crc32c", "h5py", "imagecodecs", "nibabel", "nrrd", "tifffile", "zarr", "zstandard"),
    ),
}


def require(extra: str, names: Sequence[str] | None = None) -> None:
    """Make sure that the packages of an extra of flatout can be imported, without importing them.

    Args:
        extra: a key of ``EXTRAS``.
        names: those of its packages that are needed now; None: all.

    Raises:
        UsageError: packages are missing; they are named, with the command that installs them.
    """
    missing = [name for name in names or EXTRAS[extra] if not _found(name)]
    if missing:
        raise UsageError(f"this needs {', '.join(missing)}: pip install 'flatout[{extra}]'")


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False
