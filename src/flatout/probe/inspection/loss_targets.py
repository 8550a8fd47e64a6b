"""What the targets of a loss over classes leave out: positions that it ignores, classes that never occur."""

from typing import Any

from ..recorder import REC

_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")


class LossTargets:
    """Looks at the losses and the embedding tables of the operators that it is shown."""

    def __init__(self):
        self._found: Any = None  # of the largest loss
        self._highest: Any = {}  # rows of an embedding table -> the highest index that was looked up, and how many

    def look(self, name, args):
        """Look at an operator before it runs.

        Args:
            name: of the operator, without its overload.
            args: as it was called.
        """
        if name == "embedding":
            rows, indices = len(args[0]), args[1]
            if indices.numel():
                highest, count = self._highest.get(rows, (-1, 0))
                self._highest[rows] = max(highest, int(indices.max())), count + indices.numel()
        elif name in _LOSSES:
            self._note(args[0], args[1], args[4])

    def _note(self, values, targets, ignored):
        positions = targets.numel()
        if not positions or values.dim() < 2:
            return
        classes = values.shape[1]
        if self._found is None or positions * classes > self._found["positions"] * self._found["classes"]:
            self._found = {
                "classes": classes,
                "positions": positions,
                "ignored": int((targets == ignored).sum()),
                "highest": int(targets.max()),
            }

    def save(self):
        """Write into the record what was seen."""
        if self._found is None:
            return
        # A table with as many rows as there are classes has the same ones.
        highest, count = self._highest.get(self._found["classes"], (-1, 0))
        found = dict(self._found, highest=max(highest, self._found["highest"]), looked_up=count)
        REC.save_process(loss_targets=found)
