"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("flatout")
except PackageNotFoundError:
    # The folder is on the path without being installed; the version is then unknown.
    __version__ = "0+unknown"
