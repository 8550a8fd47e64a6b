"""What a loss over classes leaves out: positions that it ignores, or that get no gradient, and unused classes."""

from typing import Any

from ..recorder import REC

_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")
_GRADIENT = "_log_softmax_backward_data"


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
        elif name in _LOSSES and args[0].dim() > 1 and args[1].numel():
            ignored = (args[1] == args[4]).sum()
            self._note(args[0].shape[1], args[1].numel(), ignored, int(args[1].max()))
        elif name == _GRADIENT and args[0].dim() > 1 and args[0].numel():
            self._graded(args[0], args[2])

    def _graded(self, gradient, dimension):
        """Of a loss by hand, such as a sum of probabilities that a mask multiplies: it leaves rows without gradient."""
        classes = gradient.shape[dimension]
        positions = gradient.numel() // classes
        ignored = positions - gradient.any(dimension).sum()
        found = self._found
        if found is not None and (found["classes"], found["positions"]) == (classes, positions):
            found["ignored"] = max(found["ignored"], int(ignored))
        else:
            self._note(classes, positions, ignored, classes - 1)

    def _note(self, classes, positions, ignored, highest):
        if self._found is None or positions * classes > self._found["positions"] * self._found["classes"]:
            self._found = {"classes": classes, "positions": positions, "ignored": int(ignored), "highest": highest}

    def save(self):
        """Write into the record what was seen."""
        if self._found is None:
            return
        # A table with as many rows as there are classes has the same ones.
        highest, count = self._highest.get(self._found["classes"], (-1, 0))
        found = dict(self._found, highest=max(highest, self._found["highest"]), looked_up=count)
        REC.save_process(loss_targets=found)
