"""The exceptions that flatout raises on purpose.

::

    FlatoutError          exit code 2
    ├── UsageError        an option, a value or a file that the user gave
    ├── RecordError       a run folder that is missing, damaged or foreign
    └── CommandError      the user's command; carries the exit code to end with

Each message is one line: what is wrong, the value seen, what is allowed, the fix. The command line
prints it without a traceback and exits with ``exit_code``. Any other exception is a bug in flatout.
"""


class FlatoutError(Exception):
    """Base of all errors that a person can do something about.

    Attributes:
        exit_code: What the command line exits with.
    """

    exit_code: int = 2


class UsageError(FlatoutError):
    """An option, a value or a file that the user gave is not usable."""


class RecordError(FlatoutError):
    """A run folder is missing, too damaged to read, not a run, or of a newer format."""


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
