"""Standard streams that are closed, full, or whose reader has gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

STANDARD_OUTPUT = "standard output"


def open_closed_streams() -> None:
    """Open the null device in place of each standard stream that was closed (``>&-``).

    Otherwise the next file that is opened gets the stream's number, and what the training prints goes into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null == number:
                os.set_inheritable(null, True)
            else:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:  # Python found it closed when it started
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


class _StandardOutput(io.FileIO):
    """Standard output whose errors name it: the operating system's name no file."""

    def write(self, data: Any, /) -> Any:
        """Write; an error of the file or device carries the name ``STANDARD_OUTPUT``."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


def name_standard_output() -> None:
    """Let errors of writing to standard output name it; a stream that somebody put in its place stays."""
    stream = sys.stdout
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):
        return
    if type(getattr(stream.buffer, "raw", stream.buffer)) is not io.FileIO:
        return
    stream.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def drop_output() -> None:
    """Send what is still to be written to the null device: Python flushes once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
