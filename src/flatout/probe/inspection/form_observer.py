"""What looks at the operators of a step for work that takes less time in another form, and times both."""

from typing import Any

from ..recorder import REC


class FormObserver:
    """Base class: a subclass collects in ``look``, and says in ``found`` what a whole step showed.

    Attributes:
        record: key of the process's record that holds what is found.
        done: no further step is looked at.
    """

    record = ""

    def __init__(self):
        self.done = False
        self.begin()

    def begin(self):
        """A step begins: nothing is known of it, and nothing is held of another one."""

    def look(self, name, args, result, made):
        """Look at an operator that has run, makes more than a view, and is no part of a backward pass.

        Args:
            name: of the operator, without its overload.
            args: as it was called.
            result: what it returned.
            made: number of the node that its own backward pass will have, or None.
        """

    def found(self) -> Any:
        """What the record gets of the first whole step, with the times of both forms."""

    def save(self):
        """Write it into the record; takes a second at the most for each kind where operands are small."""
        found = self.found()
        if found:
            REC.save_process(**{self.record: found})
        self.done = True
        self.begin()
