"""Files of metrics and logs, told from others by their names."""

import os

ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".log", ".md", ".yaml", ".yml")
SYNC = "fsync"  # the name of its calls in the record


def is_metric_file(file):
    """Whether an open file is one, by its name.

    Args:
        file: a descriptor, or an object with ``fileno``, as ``os.fsync`` takes them.
    """
    try:
        fd = file if isinstance(file, int) else file.fileno()
        return os.readlink("/proc/self/fd/%d" % fd).lower().endswith(ENDINGS)
    except (OSError, AttributeError, ValueError):
        return False
