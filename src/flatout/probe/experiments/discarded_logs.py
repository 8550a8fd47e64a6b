"""Files of logs that steps open to write after the window, with batches that are none of theirs.

They are opened as the null device instead. Without that, a training that appends to a log in each step would open the
user's file, and its steps could not be measured with kept batches.
"""

# untested: only in trainings that flatout ends, which save no coverage

import builtins
import io
import os
import threading

_LOGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".log", ".md")


class DiscardedLogs:
    """Opens logs as the null device, for one thread and for a time.

    Args:
        is_users: tells whether a path is one of the user's files.
    """

    def __init__(self, is_users):
        self._is_users, self._thread = is_users, threading.get_ident()
        self._opened = None

    def discard(self, wanted):
        """Begin or end to do so."""
        if wanted and self._opened is None:
            self._opened = builtins.open, io.open
            builtins.open, io.open = map(self._opening, self._opened)
        elif not wanted and self._opened is not None:
            builtins.open, io.open = self._opened
            self._opened = None

    def _opening(self, original):
        def opening(file, mode="r", *args, **kwargs):
            if self._is_log(file, mode):
                file, mode = os.devnull, mode.replace("x", "w")
            return original(file, mode, *args, **kwargs)

        return opening

    def _is_log(self, file, mode):
        if threading.get_ident() != self._thread or not isinstance(mode, str) or not set(mode) & set("wax"):
            return False
        return isinstance(file, (str, os.PathLike)) and os.fsdecode(file).endswith(_LOGS) and self._is_users(file)
