"""Results go to standard output; everything with a time or a path in it goes to standard error."""

import contextlib
import json
import sys
import time


def tell(**fields):
    """Tell the test something that may differ between two runs."""
    sys.stderr.write(json.dumps(fields) + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def part(name):
    """Tell the test when a part of the script began and ended, on the clock of the events."""
    start = time.monotonic_ns()
    yield
    tell(**{"part " + name: (start, time.monotonic_ns())})


def show(*losses):
    """Losses with every bit of them."""
    sys.stdout.write(" ".join(float(loss).hex() for loss in losses) + "\n")
    sys.stdout.flush()
