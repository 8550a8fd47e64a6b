"""The lines that torch's profiler itself writes: those of flatout's trace are hidden from the user."""

import contextlib
import os
import re

_LINE = re.compile(rb"[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.(cpp|h|cu):\d+\]")


@contextlib.contextmanager
def held_back():
    """Suppress the profiler's lines on standard error meanwhile; other output is written afterwards."""
    try:
        error = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    held = os.memfd_create("flatout-kineto")
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(error, 2)
        os.close(error)
        with open(held, "rb", buffering=0) as file:
            file.seek(0)
            rest = [line for line in file.read().splitlines(True) if not _LINE.match(line)]
        if rest:
            os.write(2, b"".join(rest))
