"""The errors that flatout raises on purpose, all of them, with their exit codes.

::

    FlatoutError              2
    ├── UsageError            2    an option, a value or a file that the user gave
    │   ├── DiskFull          2    the destination has no room left
    │   ├── UnpackableName    2    a key that a packed format cannot hold
    │   └── RecordingElsewhere 2   a folder that another process is recording into
    ├── RecordError           2    a run folder that is missing, damaged or foreign
    │   └── AmbiguousRun      2    a name that several runs have
    ├── DamagedCheckpoint     2    a checkpoint that is damaged or foreign
    ├── CommandError          its own: 1 to 255, from the user's command
    ├── StagingFailed         1    a staging that ended before it was complete
    ├── TrainingFailed        1    a training that cannot go on
    └── UnreadableImage       1    an image that cannot be decoded
    Interrupted               128 + the signal: Ctrl-C, SIGTERM or SIGHUP; no FlatoutError, so that nobody swallows it

The command line also exits with 0 (done), 1 (the reader of its output went away, `compare --fail-if-slower` found a
slower B, or `try` proved no candidate), 70 (a fault of flatout's own: EX_SOFTWARE of sysexits.h), 130 (Ctrl-C), 143
(SIGTERM) and 129 (SIGHUP: the terminal was closed).

Each message is one line: what is wrong, the value seen, what is allowed, the fix. The command line
prints it without a traceback and exits with ``exit_code``. Any other exception is a bug in flatout.
"""

from __future__ import annotations

import signal

SIGNAL_CODE = 128  # added to a signal's number, as shells count


class FlatoutError(Exception):
    """Base of all errors that a person can do something about.

    Attributes:
        exit_code: Exit code of the command line.
    """

    exit_code: int = 2


class UsageError(FlatoutError):
    """An option, a value or a file that the user gave is not usable."""


class DiskFull(UsageError):
    """The destination has no room left."""


class UnpackableName(UsageError):
    """A key that a packed format cannot hold."""


class RecordingElsewhere(UsageError):
    """Another process records into the folder."""


class RecordError(FlatoutError):
    """A run folder is missing, too damaged to read, not a run, or of a newer format."""


class AmbiguousRun(RecordError):
    """Several runs have the name that was given."""


class DamagedCheckpoint(FlatoutError):
    """A checkpoint that is empty, cut off, changed, or of another program."""


class CommandError(FlatoutError):
    """The user's command cannot be run, or it failed.

    Args:
        message: One line that says what happened.
        exit_code: 1 to 255: the command's own code; 128 + n when signal n ended it, as shells
            count; 2 when it could not be started.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        assert 1 <= exit_code <= 255, f"exit_code of a failure must be 1 to 255, not {exit_code}"
        super().__init__(message)
        self.exit_code = exit_code


class StagingFailed(FlatoutError):
    """The staging ended without everything that was wanted; what is complete is kept."""

    exit_code = 1


class TrainingFailed(FlatoutError):
    """The training cannot go on; what was saved is named."""

    exit_code = 1


class Interrupted(BaseException):
    """A signal ended what runs: Ctrl-C, SIGTERM or SIGHUP.

    No KeyboardInterrupt: typer ends those itself, with the exit code of Ctrl-C whatever the signal was.

    Args:
        number: Of the signal; the command line exits with 128 + this, as shells count.
        lost: One line on what came to nothing, if nothing else says it.
    """

    def __init__(self, number: int = signal.SIGINT, lost: str = "") -> None:
        super().__init__(number)
        self.number = int(number)
        self.lost = lost
        self.exit_code = SIGNAL_CODE + self.number

    def before(self, measured: str, then: str = "there is nothing to show or to resume") -> Interrupted:
        """The same, with the line that it came before anything was measured."""
        return Interrupted(self.number, f"ended by {self} before {measured}: {then}")

    def __str__(self) -> str:
        return "Ctrl-C" if self.number == signal.SIGINT else signal.Signals(self.number).name


class UnreadableImage(FlatoutError):
    """An image of the data set cannot be decoded, and the policy is to stop.

    Args:
        where: The file, or its address.
        reason: Why it cannot be decoded.
    """

    exit_code = 1

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}: repair or remove it, or set data.bad_files: skip")
        self.where, self.reason = where, reason

    def __reduce__(self) -> tuple[type[UnreadableImage], tuple[str, str]]:
        """Rebuild from the parts, so that the error can be pickled between processes."""
        return type(self), (self.where, self.reason)
